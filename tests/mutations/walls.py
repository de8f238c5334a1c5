"""How the promises about the sandbox could be broken."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_INSIDE = "tests/sandbox/test_bubblewrap.py"
_LANDLOCK = "tests/sandbox/test_landlock.py"
_FILTER = "tests/sandbox/test_seccomp.py"
_FENCES = "tests/tools/test_fencing.py"
_CLI = "tests/cli/test_sandbox.py"
_PLACES = "tests/sandbox/test_places.py"
_ARGV = "sandbox/bubblewrap.py"
_BUILDS = "tools/fencing.py"

WALLS = (
    Mutation("a command keeps the network", _ARGV, '"--unshare-net", ', "", _INSIDE),
    Mutation("a command sees all processes", _ARGV, '"--unshare-pid", ', "", _INSIDE),
    Mutation("a command makes namespaces", _ARGV, '"--disable-userns", ', "", _INSIDE),
    Mutation("a command has no filter", _ARGV, '"--seccomp", str(number + 1), ', "", _INSIDE),
    Mutation(
        "a folder of something masked can be moved away",
        _ARGV,
        "for path in (*fence.writable, *_pinned(fence))",
        "for path in fence.writable",
        _INSIDE,
    ),
    Mutation("a secret file can be read", _ARGV, "for path in fence.masked)", "for path in ())", _INSIDE),
    Mutation(
        "a protected file can be changed",
        _ARGV,
        "(*fence.readable, *fence.protected)",
        "fence.readable",
        _INSIDE,
    ),
    Mutation(
        "a pin opens a folder within a protected one",
        _ARGV,
        "parent in writable or parent in closed)",
        "parent in writable)",
        _INSIDE,
    ),
    Mutation(
        "a secret file that vanished is made",
        _ARGV,
        " if os.access(path, os.F_OK)]",
        "]",
        _PLACES,
    ),
    Mutation(
        "a secret file that vanishes while the sandbox starts is left as an empty one",
        "sandbox/keeper.py",
        "for path in filter(_is_blank, unmade):",
        "for path in ():",
        _PLACES,
    ),
    Mutation(
        "an empty secret file of the user is removed",
        "sandbox/keeper.py",
        " if not _is_blank(path)]",
        "]",
        _PLACES,
    ),
    Mutation(
        "files in /dev/shm take half of the memory",
        _ARGV,
        '"--size", _PRIVATE_BYTES, "--tmpfs", "/dev/shm"',
        '"--tmpfs", "/dev/shm"',
        _PLACES,
    ),
    Mutation("root reads the file of passwords", "sandbox/system.py", '"etc/shadow*", ', "", _INSIDE),
    Mutation(
        "root changes settings of the kernel", _ARGV, '_KERNEL = ("/proc/sys", ', "_KERNEL = (", _INSIDE
    ),
    Mutation(
        "a process takes all memory",
        "sandbox/system.py",
        '"RLIMIT_DATA": fence.memory_bytes',
        '"RLIMIT_DATA": 1 << 40',
        _INSIDE,
    ),
    Mutation(
        "what has a fence runs without one",
        "sandbox/process.py",
        "            raise SandboxUnavailable(_NO_SANDBOX, hint=_NO_SANDBOX_HINT)\n",
        "            return await self._run(launch, on_output)\n",
        _INSIDE,
    ),
    Mutation(
        "a backend that runs its argument counts",
        "sandbox/probing.py",
        "            if done:\n",
        "            if not said:\n",
        _INSIDE,
    ),
    Mutation(
        "a backend that says what it likes counts",
        "sandbox/probing.py",
        'if said["bait"] == bait and not ended.exit_code:',
        "if not ended.exit_code:",
        _INSIDE,
    ),
    Mutation(
        "every netlink socket is allowed",
        "sandbox/seccomp.py",
        "*_argument(2), *_unless(_EQUAL, _NETLINK_ROUTE, _REFUSE), ",
        "",
        _FILTER,
    ),
    Mutation(
        "calls of x32 are allowed", "sandbox/seccomp.py", "ioctl=16, first_foreign=_X32", "ioctl=16", _FILTER
    ),
    Mutation(
        "a fence is kept although a folder changed",
        "tools/fencing.py",
        "known is not None and known.changed_ns == changed_ns",
        "known is not None",
        _FENCES,
    ),
    Mutation(
        "a link masks what is not there",
        "tools/fencing.py",
        "is_shown and os.path.exists(target) and",
        "is_shown and",
        _FENCES,
    ),
    Mutation(
        "what controls programs can be changed in a folder of the configuration",
        "tools/fencing.py",
        "        for top in rules.writable[first_more:]:\n",
        "        for top in ():\n",
        _FENCES,
    ),
    Mutation(
        "a folder that is too deep is passed over",
        "tools/fencing.py",
        "    except (FileNotFoundError, NotADirectoryError):\n",
        "    except (FileNotFoundError, OSError):\n",
        _FENCES,
    ),
    Mutation(
        "a command runs beside Holdfast's own files",
        "tools/fencing.py",
        "            if is_inside(workspace, home):\n",
        "            if workspace == home:\n",
        _FENCES,
    ),
    Mutation(
        "a link shows a command what it leads to",
        "tools/fencing.py",
        "path not in roots and any(is_inside(root, path) for root in roots) and os",
        "path not in roots and os",
        _FENCES,
    ),
    Mutation(
        "a link is mounted in place of a folder",
        _ARGV,
        "if word in _BY_DESCRIPTOR else",
        "if not word else",
        _INSIDE,
    ),
    Mutation(
        "the shell forgets its fence",
        _BUILDS,
        "            fence=fence,\n            put_right",
        "            put_right",
        _CLI,
    ),
    Mutation(
        "a call runs in another fence than its intent records",
        _BUILDS,
        "if walled is not None and",
        "if walled is None and",
        _FENCES,
    ),
    Mutation(
        "a program begins wherever things are mounted",
        "sandbox/keeper.py",
        'if not _are_in_place(pid, held["mounts"]):',
        "if not held:",
        _PLACES,
    ),
    Mutation(
        "nobody counts the processes in a sandbox",
        "sandbox/keeper.py",
        "if inside and inside.are_too_many():",
        "if inside and inside is None:",
        "tests/sandbox/test_crowds.py",
    ),
    Mutation(
        "what a command made that controls other programs stays",
        "tools/aside.py",
        "if not _is_harmless(path) and put_aside(path)]",
        "if _is_harmless(path) and put_aside(path)]",
        "tests/tools/test_aside.py",
    ),
    Mutation(
        "what is put aside is renamed through links",
        "tools/aside.py",
        "os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd",
        "os.O_DIRECTORY | os.O_CLOEXEC, dir_fd",
        "tests/tools/test_aside.py",
    ),
    Mutation(
        "nobody looks what a command made",
        "sandbox/process.py",
        "if launch.put_right is not None:",
        "if launch.put_right is self:",
        _CLI,
    ),
    Mutation(
        "a result does not say that the sandbox was why",
        "tools/within.py",
        'if fence is None or ended.how != "exited" or not ended.exit_code:',
        "if fence is not None:",
        _CLI,
    ),
    Mutation(
        "a sandbox is needed where nothing starts a program",
        "app.py",
        "await open_sandbox(config) if starts else None",
        "await open_sandbox(config)",
        _CLI,
    ),
    Mutation(
        "what has no fence runs where there is a sandbox",
        "sandbox/process.py",
        "if fence is None and self._sandbox is not None:",
        "if fence is None and self._sandbox is self:",
        _INSIDE,
    ),
    Mutation(
        "a function of its own process gets the variables of its starter",
        "tools/function.py",
        "env=clean_environment(os.environ)",
        "env=dict(os.environ)",
        "tests/tools/test_walled_tools.py",
    ),
    Mutation(
        "a hook runs without a sandbox",
        "app.py",
        "factory(_ENCLOSED)(*inside) if sandbox else None",
        "factory(_ENCLOSED)(*inside) if not sandbox else None",
        _CLI,
    ),
    Mutation(
        "a process with a sandbox runs commands of a run without one outside",
        _BUILDS,
        'walls.backend if walls.backend != "unsafe" else self._backend',
        "walls.backend",
        _FENCES,
    ),
    Mutation(
        "a run begins without the sandbox that was asked for",
        "sandbox/choice.py",
        "if sandbox is None or found.fault:",
        "if sandbox is None:",
        _CLI,
    ),
    Mutation(
        "without namespaces, root keeps its capabilities",
        "sandbox/landlock_child.py",
        "    _leave_capabilities(libc, ask, ",
        "    (lambda *_: 0)(libc, ask, ",
        _LANDLOCK,
    ),
    Mutation(
        "without namespaces, other processes are signalled",
        "sandbox/landlock.py",
        "_SCOPES, _SCOPES_ABI = 0b11, 6",
        "_SCOPES, _SCOPES_ABI = 0b01, 6",
        _LANDLOCK,
    ),
    Mutation(
        "without namespaces, one of a pair of sockets is connected to another place",
        "sandbox/seccomp.py",
        "*_argument(0), *_unless(_EQUAL, _AF_UNIX, _REFUSE),\n        *_argument(1), *streams,",
        "*_argument(0), *_if(_EQUAL, _AF_UNIX, _ALLOW),\n        *_argument(1), *streams,",
        _LANDLOCK,
    ),
    Mutation(
        "without namespaces, the folders that were opened stay open",
        "sandbox/landlock_child.py",
        "        os.close(fd)\n",
        "        fd += 0\n",
        _LANDLOCK,
    ),
    Mutation(
        "a folder of a killed call stays",
        "sandbox/process.py",
        "await asyncio.to_thread(own_folder.remove_left, keys)",
        "await asyncio.to_thread(own_folder.remove_left, [])",
        _LANDLOCK,
    ),
    Mutation(
        "without namespaces, protected files are not kept",
        _BUILDS,
        'self.backend(walls) == "landlock"',
        'self.backend(walls) == "bubblewrap"',
        _CLI,
    ),
    Mutation(
        "a protected file that was written within its time stays written",
        "tools/kept.py",
        "if _facts(found) == copy.facts and read_ns - found.st_ctime_ns > _FRESH_NS:",
        "if copy.mode == found.st_mode and copy.facts[1] == found.st_ino:",
        "tests/tools/test_kept.py",
    ),
)

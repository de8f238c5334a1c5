"""How the promises about who watches a command, what it finds, and what it leaves could be broken."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_LANDLOCK = "tests/sandbox/test_landlock.py"
_SHARED = "tests/sandbox/test_shared_memory.py"
_FENCES = "tests/tools/test_fencing.py"

WATCHED = (
    Mutation(
        "a guard starts a program although its driver is gone",
        "sandbox/guard.py",
        " or waiting.ready(ends, 0):",
        ":",
        "tests/sandbox/test_processes.py::test_a_guard_whose_driver_is_gone_right_before_the_start_starts_nothing",
    ),
    Mutation(
        "a call that fails after its first process began leaves it",
        "sandbox/guard.py",
        "                    _end_all(root, wakes, lambda: waiting.ended(wakes)[1])\n",
        "                    pass\n",
        "tests/sandbox/test_processes.py::test_a_guard_whose_call_fails_after_its_first_process_began_ends_it",
    ),
    Mutation(
        "a keeper does not end what a killed guard left",
        "sandbox/keeper.py",
        "        if orphaned and not _kill_strays(guards):",
        "        if orphaned:",
        "tests/sandbox/test_processes.py::test_what_a_killed_guard_leaves_is_gone_when_the_keeper_closes_the_call",
    ),
    Mutation(
        "a keeper closes a call before what its killed guard left is gone",
        "sandbox/keeper.py",
        "            orphaned.append(control) if codes[pid] else control.close()",
        "            control.close()",
        "tests/sandbox/test_processes.py::test_what_a_killed_guard_leaves_is_gone_when_the_keeper_closes_the_call",
    ),
    Mutation(
        "a keeper ends the calls of other guards with those of a killed one",
        "sandbox/keeper.py",
        "with_descendants(stats, mine.difference(guards))",
        "with_descendants(stats, mine)",
        "tests/sandbox/test_processes.py::test_what_a_killed_guard_leaves_is_gone_when_the_keeper_closes_the_call",
    ),
    Mutation(
        "the own folder of a call may be there already",
        "sandbox/landlock_rights.py",
        "    os.mkdir(name, 0o700, dir_fd=place)\n",
        '    os.path.exists(kept["own"]) or os.mkdir(name, 0o700, dir_fd=place)\n',
        _LANDLOCK,
    ),
    Mutation(
        "a program does not begin where the proxy has just ended",
        "sandbox/landlock_rights.py",
        "    except OSError:\n        pass  # the proxy is gone",
        "    except KeyError:\n        pass  # the proxy is gone",
        _LANDLOCK,
    ),
    Mutation(
        "what a link in place of a folder leads to is emptied",
        "depths.py",
        "_PASSED = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | _O_PATH",
        "_PASSED = os.O_DIRECTORY | os.O_CLOEXEC | _O_PATH",
        "tests/sandbox/test_landlock.py::"
        "test_what_looks_like_the_own_folder_of_a_call_and_belongs_to_another_user_stays",
    ),
    Mutation(
        "the folder of another user is removed as one of a killed call",
        "sandbox/own_folder.py",
        "        if os.lstat(path).st_uid == os.getuid():\n",
        "        if os.lstat(path):\n",
        _LANDLOCK,
    ),
    Mutation(
        "a command uses the shared memory of all programs",
        "sandbox/landlock.py",
        "            paths=tuple(self._of_system(fence)),",
        '            paths=(*self._of_system(fence), ("/dev/shm", self._all)),',
        _SHARED,
    ),
    Mutation(
        "memory is mounted over what a command uses",
        "sandbox/landlock.py",
        '    return "" if any(',
        '    return "" if not any(',
        _SHARED,
    ),
    Mutation(
        "a command has no shared memory of its own",
        "sandbox/guard.py",
        '                    if rights["shared"] and shared',
        '                    if not rights["shared"] and shared',
        _SHARED,
    ),
    Mutation(
        "what is mounted for a command is mounted for all",
        "sandbox/shared_memory.py",
        "_DOWNWARDS = 0x4000 | 0x80000",
        "_DOWNWARDS = 0x4000 | 0x100000",
        _SHARED,
    ),
    Mutation(
        "a user who cannot have a namespace of its own loses its number",
        "sandbox/shared_memory.py",
        "    helper = os.fork()\n",
        "    helper = os.fork() if not _has_own_user(libc) else 0\n",
        _SHARED,
    ),
    Mutation(
        "another name of a file that has become secret is not found in a known folder",
        "tools/other_names.py",
        "known = before.folders if before.files == files else {}",
        "known = before.folders",
        "tests/tools/test_other_names.py",
    ),
    Mutation(
        "a folder that may change again and keep its time is remembered",
        "tools/other_names.py",
        "changed_ns = 0 if is_fresh(facts.st_ctime_ns, looked_ms) else facts.st_ctime_ns",
        "changed_ns = facts.st_ctime_ns",
        "tests/tools/test_other_names.py",
    ),
    Mutation(
        "a command talks to sockets in a folder of `write`",
        "tools/fencing.py",
        "for folder in (*look.found, *look.others, *look.shown) for path in folder.sockets",
        "for folder in (*look.found, *look.shown) for path in folder.sockets",
        _FENCES,
    ),
    Mutation(
        "a closed folder of `write` can be opened and read",
        "tools/fencing.py",
        "            *(path for folder in look.others if folder.is_shut for path in folder.masked),\n",
        "",
        _FENCES,
    ),
    Mutation(
        "what a killed Holdfast left is undone while its processes live",
        "tools/undoing.py",
        "        end_trees(keys)\n",
        "",
        "tests/tools/test_undoing.py",
    ),
    Mutation(
        "the own folders of killed calls stay",
        "tools/undoing.py",
        "        own_folder.remove_left(keys)",
        "        pass",
        "tests/tools/test_undoing.py",
    ),
    Mutation(
        "an empty file that a killed sandbox made stays",
        "tools/undoing.py",
        "        for path in trace.covered:\n",
        "        for path in ():\n",
        "tests/tools/test_undoing.py",
    ),
    Mutation(
        "on a full disk, a half of a file stays",
        "tools/kept.py",
        "        with suppress(OSError):\n            os.unlink(draft, dir_fd=folder)\n        raise",
        "        raise",
        "tests/tools/test_kept.py",
    ),
    Mutation(
        "where something protected led before another command does not count",
        "tools/baseline.py",
        "led = dict.fromkeys((*trace.led, *(path for path in other.led if is_within(trace.writable, path))))",
        "led = dict.fromkeys(trace.led)",
        "tests/tools/test_baseline.py",
    ),
    Mutation(
        "a change while two commands begin is taken for what was there",
        "tools/baseline.py",
        "min(rest.read_ns, known.read_ns)",
        "max(rest.read_ns, known.read_ns)",
        "tests/tools/test_baseline.py",
    ),
    Mutation(
        "one process looks while another one puts things right",
        "tools/turns.py",
        "with self._turn, _locked(self._folder, fcntl.LOCK_SH):",
        "with self._turn:",
        "tests/tools/test_turns.py",
    ),
    Mutation(
        "two processes put things right at once",
        "tools/turns.py",
        "with self._turn, _locked(self._folder, fcntl.LOCK_EX):",
        "with self._turn, _locked(self._folder, fcntl.LOCK_SH):",
        "tests/tools/test_turns.py",
    ),
    Mutation(
        "a secret file made in the moment of a look stays unknown",
        "tools/secret_files.py",
        "self.folders[path] = _FRESH if is_fresh(changed_ns, self._now_ms) else changed_ns",
        "self.folders[path] = changed_ns",
        "tests/tools/test_secret_files.py",
    ),
    Mutation(
        "an approved process in the background is cut",
        "tools/background.py",
        " and not walled.is_approved",
        "",
        "tests/tools/test_walled_tools.py",
    ),
)

"""Programs that write files: what they make, change, move and delete."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from holdfast.policy.programs_options import Program, Reading, operand_uses, reading_of, shown, uses_by_row
from holdfast.policy.programs_risks import MEDIUM_RISK
from holdfast.policy.simple import SimpleCommand, Word
from holdfast.policy.uses import Depth, Reader, Use, UseAccess, Uses, merged

_MODES = "-c -f -v -R -H -P --changes --quiet --silent --verbose --preserve-root --recursive --no-dereference"

WRITERS: Mapping[str, Program] = {
    "mkdir": Program(operands="make*", plain="-p -v -m= --parents --verbose --mode="),
    "rmdir": Program(operands="make*", plain="-v --verbose --ignore-fail-on-non-empty", asks="-p --parents"),
    "touch": Program(
        operands="make*",
        plain="-a -c -m -h -d= -t= -f --date= --time= --no-create --no-dereference",
        reads="-r= --reference=",
    ),
    "unlink": Program(operands="make"),
    "chmod": Program(operands="text write*", plain=_MODES, reads="--reference=", risk=MEDIUM_RISK["chmod"]),
    "chown": Program(operands="text write*", plain=_MODES, reads="--reference=", risk=MEDIUM_RISK["chown"]),
    "chgrp": Program(operands="text write*", plain=_MODES, reads="--reference=", risk=MEDIUM_RISK["chgrp"]),
    "truncate": Program(
        operands="write*",
        plain="-c -o -s= --no-create --io-blocks --size=",
        reads="-r= --reference=",
        risk=MEDIUM_RISK["truncate"],
    ),
    "shred": Program(
        operands="write*",
        plain="-f -n= -s= -u -v -x -z --force --iterations= --size= --remove? --verbose --exact --zero",
        reads="--random-source=",
        risk=MEDIUM_RISK["shred"],
    ),
    "split": Program(
        plain="-a= -b= -C= -d -e -l= -n= -t= -u -x --suffix-length= --additional-suffix= --bytes= "
        "--line-bytes= --numeric-suffixes? --hex-suffixes? --lines= --number= --separator= --verbose "
        "--elide-empty-files",
        operands="read make",
        runs="--filter=",
        risk=MEDIUM_RISK["split"],
    ),
    "zip": Program(
        operands="write read*",
        plain="-r -q -v -j -m -u -f -y -0 -1 -9 -@ --recurse-paths --quiet --junk-paths --symlinks -x= -i=",
        searches="links",
        risk=MEDIUM_RISK["zip"],
    ),
    **dict.fromkeys(
        ("7z", "7za", "7zr", "7zz", "jar", "pax", "rar", "ar"),
        Program(operands="text make read*", writes="-o= -C= -w= -f=", searches="links", risk=MEDIUM_RISK["zip"]),
    ),
    **{
        name: Program(
            operands="read*",
            plain="-r -c -d -k -f -v -q -t -l -1 -9 --recursive --stdout --decompress --keep --force",
            walks="-r --recursive",
            searches="all",
            risk=MEDIUM_RISK[name],
        )
        for name in ("gzip", "gunzip", "bzip2", "xz", "zstd")
    },
    **dict.fromkeys(
        ("aws", "gsutil", "rclone", "s3cmd", "azcopy", "mc"),
        Program(operands="read*", searches="all", risk="sends files to other machines"),
    ),
    "unzip": Program(operands="read text*", plain="-o -n -q -l -v -t", writes="-d=", risk=MEDIUM_RISK["unzip"]),
    "patch": Program(
        operands="write read",
        plain="-p= -R -N -s -E --strip= --reverse --forward --dry-run",
        reads="-i= --input=",
        writes="-o= --output= -r= --reject-file= -d= --directory=",
        risk=MEDIUM_RISK["patch"],
    ),
}  # fmt: skip

# --- tee, rm, dd ----------------------------------------------------------------------------------

_TEE = "-a -i -p --append --ignore-interrupts --output-error?"
_TEES = (Program(operands="write*", plain=_TEE), Program(operands="make*", plain=_TEE))
_RM = Program(
    operands="make*",
    plain="-f -i -I -v -d -r -R --force --interactive? --verbose --dir --recursive --one-file-system "
    "--preserve-root?",
)
_DD_TEXT = frozenset(
    {"bs", "ibs", "obs", "cbs", "count", "skip", "seek", "iseek", "oseek", "status", "conv", "iflag", "oflag"}
)


def uses_of_tee(command: SimpleCommand, name: str) -> Uses:
    """Return what `tee` writes. With `-a` nothing is lost."""
    words = command.words[1:]
    adds = reading_of(_TEES[0], words).has("-a", "--append")
    return uses_by_row(name, _TEES[adds], words)


def uses_of_rm(command: SimpleCommand, name: str) -> Uses:
    """Return what `rm` deletes. Files that are named, one by one, need no approval of their own."""
    words = command.words[1:]
    reading = reading_of(_RM, words)
    found = [uses_by_row(name, _RM, words)]
    if reading.has("-r", "-R", "--recursive"):
        tree = tuple([Use("tree", word) for word in reading.operands])
        found.insert(0, Uses(tree, asks=f"`{name}` deletes folders with everything in them."))
    if counted := next((word.text for word in reading.operands if word.is_range), ""):
        asks = f"`{name}` deletes `{shown(counted)}` and whatever else a range in braces counts out."
        found.append(Uses(asks=asks))
    return merged(found)


def uses_of_dd(command: SimpleCommand, name: str) -> Uses:
    """Return what `dd` reads and writes."""
    found = [Uses(asks=f"`{name}` {MEDIUM_RISK['dd']}.")]
    for word in command.words[1:]:
        key, _, value = word.text.partition("=")
        if key in ("if", "of"):
            found.append(operand_uses(name, "read" if key == "if" else "write", word._replace(text=value)))
        elif key not in _DD_TEXT:
            found.append(Uses(asks=f"`{shown(word.text)}` of `{name}` needs approval."))
    return merged(found)


# --- tar, rsync -----------------------------------------------------------------------------------

_TAR = Program(
    operands="read*",
    plain="-c -x -t -r -u -v -z -j -J -p -k -h -O --create --extract --get --list --append --update --verbose --gzip "
    "--bzip2 --xz --exclude= --strip-components= --transform= --dereference --to-stdout --owner= --group= "
    "--mtime= --sort= --format= --zstd",
    reads="-T= -X= --files-from= --exclude-from=",
    writes="-f= --file= -C= --directory= -g= --listed-incremental= --index-file=",
    runs="-I= --use-compress-program= --checkpoint-action= --to-command= --info-script= "
    "--new-volume-script= --rsh-command= --rmt-command= -F=",
    searches="all",
    links="-h --dereference",
    risk=MEDIUM_RISK["tar"],
)
_TAR_UNPACKS = re.compile(r"-?[vzjJkpPomS]*[xt][^cruA]*|--(?:ext\w*|get|list)")
_RSYNC = Program(
    operands="read*",
    plain="-a -v -z -r -n -u -l -L -t -p -o -g -D -H -P -q -h -c -x -R -d -W -S -i --archive --verbose --compress "
    "--recursive --dry-run --update --links --copy-links --times --delete --progress --exclude= --include= "
    "--filter= --stats --partial --checksum --human-readable",
    reads="--files-from= --exclude-from= --include-from= --password-file=",
    runs="-e= --rsh= --rsync-path=",
    searches="all",
    links="-L --copy-links",
    risk=MEDIUM_RISK["rsync"],
)


def uses_of_tar(command: SimpleCommand, name: str) -> Uses:
    """Return what `tar` packs, with everything in the folders that it is given. It unpacks what is in an archive."""
    words = command.words[1:]
    if any(_TAR_UNPACKS.fullmatch(word.text) for word in words[:1]):
        return uses_by_row(name, _TAR._replace(searches="", links=""), words)
    packed = [Use("read", word, deep="all") for word in reading_of(_TAR, words).values("-C", "--directory")]
    return merged([Uses(tuple(packed)), uses_by_row(name, _TAR, words)])


def uses_of_rsync(command: SimpleCommand, name: str) -> Uses:
    """Return what `rsync` copies, with everything in the folders that it is given. The last operand is the target."""
    words = command.words[1:]
    operands = reading_of(_RSYNC, words).operands
    target = operands[-1] if len(operands) > 1 else None
    made = (Use("write", target),) if target is not None and ":" not in target.text else ()
    return merged([Uses(made), uses_by_row(name, _RSYNC, [word for word in words if word is not target])])


# --- cp, mv, install, ln --------------------------------------------------------------------------

_INTO = "-t= --target-directory="
_CP = Program(
    operands="text*",
    plain=f"{_INTO} -T -f -i -n -u -v -p -x -r -R -a --no-target-directory --force --interactive --no-clobber "
    "--update? --verbose --preserve? --no-preserve= --one-file-system --recursive "
    "--archive --reflink? --sparse= --strip-trailing-slashes",
    asks="-P -d --no-dereference -l -s -L -H -b -S= --link --symbolic-link --dereference --backup? --suffix= "
    "--parents --remove-destination --attributes-only --copy-contents",
)
_MV = Program(
    operands="text*",
    plain=f"{_INTO} -T -f -i -n -u -v --no-target-directory --force --interactive --no-clobber --update? --verbose "
    "--strip-trailing-slashes",
    asks="-b -S= --backup? --suffix= --exchange --no-copy",
)
_INSTALL = Program(
    operands="text*",
    plain=f"{_INTO} -T -D -C -v -p -m= -d",
    asks="-o= -g= -s --strip-program=",
    risk=MEDIUM_RISK["install"],
)
_LN = Program(
    operands="text*",
    plain=f"{_INTO} -T -s -f -n -r -v -i -L -P --no-target-directory --symbolic --force --no-dereference --relative "
    "--verbose --interactive --logical --physical",
    asks="-b -S= -d -F --backup? --suffix= --directory",
)  # fmt: skip
_COPIERS: Mapping[str, Program] = {"cp": _CP, "mv": _MV, "install": _INSTALL}


def uses_of_copier(command: SimpleCommand, name: str) -> Uses:
    """Return what `cp`, `mv` and `install` read, move away and overwrite."""
    words, program = command.words[1:], _COPIERS[name]
    reading = reading_of(program, words)
    sources, target = _to_target(reading)
    is_recursive = reading.has("-r", "-R", "-a", "--recursive", "--archive")
    overwrites = not reading.has("-n", "--no-clobber")
    moves = name == "mv"
    deep: Depth = "links" if reading.has("-L", "--dereference") else "all"
    files = [
        Use("tree", word, overwrites=True) if moves else Use("read", word, deep=deep if is_recursive else "")
        for word in sources
    ]
    access: UseAccess = "tree" if is_recursive or moves else "write"
    files += [Use(access, place, overwrites, is_target=moves) for place in _places(sources, target)]
    asks = "" if target is not None and sources else f"`{name}` has no target that is known."
    if any(word.is_glob for word in (*sources, *filter(None, [target]))):
        asks = f"`{name}` changes files by pattern."
    return merged([Uses(tuple(files), asks=asks), uses_by_row(name, program, words), _unknown(name, words)])


def uses_of_ln(command: SimpleCommand, name: str) -> Uses:
    """Return what `ln` makes. A link makes its target writable under another name, so it counts as written."""
    words = command.words[1:]
    reading = reading_of(_LN, words)
    sources, target = _to_target(reading)
    if target is None and sources:
        target, sources = Word(posixpath.basename(sources[-1].text)), sources
    is_symbolic = reading.has("-s", "--symbolic")
    is_relative = is_symbolic and not reading.has("-r", "--relative")
    places = list(_places(sources, target))
    overwrites = reading.has("-f", "--force")
    files = [Use("write", place, overwrites) for place in places]
    starts = sorted({posixpath.dirname(place.text) for place in places}) if is_relative else [""]
    files += [
        Use("tree", word._replace(text=posixpath.join(start, word.text)))
        for word in sources
        for start in starts
    ]
    return merged([Uses(tuple(files)), uses_by_row(name, _LN, words), _unknown(name, words)])


def _to_target(reading: Reading) -> tuple[Sequence[Word], Word | None]:
    """Return what is copied and where to."""
    if into := reading.values("-t", "--target-directory"):
        return reading.operands, into[-1]
    if len(reading.operands) < 2:
        return reading.operands, None
    return reading.operands[:-1], reading.operands[-1]


def _places(sources: Sequence[Word], target: Word | None) -> Iterator[Word]:
    """Return where the copies may come to lie: at the target, or in it if it is a folder."""
    if target is None:
        return
    yield target
    for word in sources:
        name = posixpath.basename(word.text.rstrip("/"))
        is_known = word.is_known and target.is_known
        yield Word(posixpath.join(target.text, name), is_known, word.is_glob or target.is_glob)


def _unknown(name: str, words: Sequence[Word]) -> Uses:
    if all(word.is_known for word in words):
        return Uses()
    return Uses(asks=f"A word of `{name}` is known only when it runs.")


FILE_READERS: Mapping[str, Reader] = {
    "tee": uses_of_tee,
    "rm": uses_of_rm,
    "dd": uses_of_dd,
    "tar": uses_of_tar,
    "bsdtar": uses_of_tar,
    "gtar": uses_of_tar,
    "rsync": uses_of_rsync,
    "ln": uses_of_ln,
    **dict.fromkeys(_COPIERS, uses_of_copier),
}

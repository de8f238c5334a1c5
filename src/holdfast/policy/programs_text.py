"""The table of programs that read files and print: what their options and operands do."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.policy.programs_options import Program

_SUMS = Program(
    plain="-b -t -w -z --binary --tag --text --ignore-missing --quiet --status --strict --warn --zero "
    "-a= --algorithm= -l= --length= --untagged --raw --base64",
    asks="-c --check",
)
GREP = Program(
    operands="text read*",
    plain="-E -F -G -P -e= -i -y -v -w -x -c -L -l -m= -o -q -s -b -H -h -n -T -Z -z -A= -B= -C= -a "
    "-I -U -u -r -D= -d= --extended-regexp --fixed-strings --basic-regexp --perl-regexp --regexp= "
    "--ignore-case --no-ignore-case --invert-match --word-regexp --line-regexp --count --color? --colour? "
    "--files-without-match --files-with-matches --max-count= --only-matching --quiet --silent "
    "--no-messages --byte-offset --with-filename --no-filename --label= --line-number --initial-tab "
    "--null --null-data --after-context= --before-context= --context= --text --binary-files= --binary "
    "--line-buffered --exclude= --exclude-dir= --include= --recursive --directories= --devices= "
    "--unix-byte-offsets",
    reads="-f= --file= --exclude-from=",
    asks="-R --dereference-recursive",
    stands_in="-e --regexp -f --file",
    without=".",
    walks="-r --recursive -d --directories -R --dereference-recursive",
    searches="all",
    links="-R --dereference-recursive",
    picks="--include",
    drops="--exclude --exclude-from",
    has_numbers=True,
)
_LIST = Program(
    plain="-a -A -b -B -c -C -d -f -F -g -G -h -H -i -I= -k -l -m -n -N -o -p -q -Q -r -R -s -S -t "
    "-T= -u -U -v -w= -x -X -Z -1 --all --almost-all --author --escape --block-size= --ignore-backups "
    "--color? --directory --dired --classify? --file-type --format= --full-time --group-directories-first "
    "--no-group --human-readable --si --dereference-command-line "
    "--dereference-command-line-symlink-to-dir --hide= --hyperlink? --indicator-style= --inode --ignore= "
    "--kibibytes --literal --numeric-uid-gid --hide-control-chars --show-control-chars --quote-name "
    "--quoting-style= --reverse --recursive --size --sort= --time= --time-style= --tabsize= --width= "
    "--context --zero -D",
    asks="-L --dereference",
    without=".",
    searches="shown",
    everything="-a -A -f -R --all --almost-all --recursive",
    is_listing=True,
)

READERS: Mapping[str, Program] = {
    "cat": Program(
        plain="-A -b -e -E -n -s -t -T -u -v --show-all --number-nonblank --show-ends --number "
        "--squeeze-blank --show-tabs --show-nonprinting"
    ),
    "head": Program(
        plain="-c= -n= -q -v -z --bytes= --lines= --quiet --silent --verbose --zero-terminated",
        has_numbers=True,
    ),
    "tail": Program(
        plain="-c= -n= -q -v -z -f -F -s= -r --bytes= --lines= --quiet --silent --verbose "
        "--zero-terminated --follow? --pid= --retry --sleep-interval= --max-unchanged-stats=",
        has_numbers=True,
    ),
    "wc": Program(
        plain="-c -m -l -L -w --bytes --chars --lines --max-line-length --words --total= --debug",
        lists="--files0-from=",
    ),
    "sort": Program(
        plain="-b -d -f -g -i -M -h -n -R -r -V -c -C -m -s -u -z -k= -t= -S= --ignore-leading-blanks "
        "--dictionary-order --ignore-case --general-numeric-sort --ignore-nonprinting --month-sort "
        "--human-numeric-sort --numeric-sort --random-sort --reverse --sort= --version-sort --batch-size= "
        "--check? --debug --key= --merge --stable --buffer-size= --field-separator= --parallel= --unique "
        "--zero-terminated",
        reads="--random-source=",
        writes="-o= --output= -T= --temporary-directory=",
        lists="--files0-from=",
        runs="--compress-program=",
    ),
    "uniq": Program(
        operands="read write",
        plain="-c -d -D -f= -i -s= -u -z -w= --count --repeated --all-repeated? --skip-fields= "
        "--group? --ignore-case --skip-chars= --unique --zero-terminated --check-chars=",
    ),
    "cut": Program(
        plain="-b= -c= -d= -f= -n -s -z --bytes= --characters= --delimiter= --fields= --complement "
        "--only-delimited --output-delimiter= --zero-terminated"
    ),
    "tr": Program(
        operands="text*", plain="-c -C -d -s -t --complement --delete --squeeze-repeats --truncate-set1"
    ),
    "nl": Program(
        plain="-b= -d= -f= -h= -i= -l= -n= -p -s= -v= -w= --body-numbering= --section-delimiter= "
        "--footer-numbering= --header-numbering= --line-increment= --join-blank-lines= --number-format= "
        "--no-renumber --number-separator= --starting-line-number= --number-width="
    ),
    "tac": Program(plain="-b -r -s= --before --regex --separator="),
    "rev": Program(plain="-0 --zero"),
    "comm": Program(
        plain="-1 -2 -3 -z --check-order --nocheck-order --output-delimiter= --total --zero-terminated"
    ),
    "paste": Program(plain="-d= -s -z --delimiters= --serial --zero-terminated"),
    "join": Program(
        plain="-a= -e= -i -j= -o= -t= -v= -1= -2= -z --ignore-case --check-order --nocheck-order "
        "--header --zero-terminated"
    ),
    "fold": Program(plain="-b -s -w= --bytes --spaces --width= -c --characters"),
    "fmt": Program(
        plain="-c -p= -s -t -u -w= -g= --crown-margin --prefix= --split-only --tagged-paragraph "
        "--uniform-spacing --width= --goal=",
        has_numbers=True,
    ),
    "expand": Program(plain="-i -t= --initial --tabs=", has_numbers=True),
    "unexpand": Program(plain="-a -t= --all --first-only --tabs=", has_numbers=True),
    "column": Program(
        plain="-t -s= -c= -o= -x -N= -R= -T= -H= -W= -O= -J -L -e -E= -d -r= -i= -p= --table "
        "--separator= --output-width= --table-name= --output-separator= --fillrows --table-columns= "
        "--table-right= --table-truncate= --table-hide= --table-wrap= --table-order= --json "
        "--keep-empty-lines --table-noheadings --table-columns-limit="
    ),
    "od": Program(
        plain="-A= -j= -N= -S= -t= -v -w? -a -b -c -d -f -i -l -o -s -x --address-radix= --endian= "
        "--skip-bytes= --read-bytes= --strings? --format= --output-duplicates --width? --traditional"
    ),
    "hexdump": Program(plain="-b -c -C -d -e= -n= -o -s= -v -x -X -L?", reads="-f="),
    "xxd": Program(
        operands="read write",
        plain="-a -b -C -c? -E -e -g? -i -l? -n? -o? -p -s? -u -d",
        is_ordered=True,
    ),
    "strings": Program(
        plain="-a -d -f -n= -o -t= -e= -w -s= -T= -U= --all --data --print-file-name --bytes= "
        "--radix= --encoding= --include-all-whitespace --output-separator= --target= --unicode=",
        has_numbers=True,
        at_files=True,
    ),
    "base64": Program(plain="-d -i -w= --decode --ignore-garbage --wrap="),
    **dict.fromkeys(
        ("md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "cksum", "sum"),
        _SUMS,
    ),
    "diff": Program(
        plain="-q -s -c -C= -u -U= -e -n -y -W= -p -F= -t -T -N -i -E -Z -b -w -B -I= -a -d -x= -S= "
        "--normal --brief --report-identical-files --context? --unified? --ed --rcs --side-by-side "
        "--width= --left-column --suppress-common-lines --show-c-function --show-function-line= --label= "
        "-L= --expand-tabs --initial-tab --tabsize= --suppress-blank-empty --new-file "
        "--unidirectional-new-file --ignore-case --ignore-tab-expansion --ignore-trailing-space "
        "--ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-matching-lines= --text "
        "--strip-trailing-cr --ifdef= -D= --line-format= --old-line-format= --new-line-format= "
        "--unchanged-line-format= --minimal --horizon-lines= --speed-large-files --color? --palette= "
        "--exclude= --starting-file= --ignore-file-name-case --no-ignore-file-name-case --no-dereference",
        reads="-X= --exclude-from= --from-file= --to-file=",
        asks="-r --recursive -l --paginate",
        searches="links",
        has_numbers=True,
    ),
    "cmp": Program(
        operands="read read text text",
        plain="-b -i= -l -n= -s --print-bytes --ignore-initial= --verbose --bytes= --quiet --silent",
    ),
    "file": Program(
        plain="-b -c -d -e= -E -F= -h -i -k -l -L -n -N -0 -p -P= -r -s -v --brief "
        "--checking-printout --exclude= --exclude-quiet= --extension --separator= --mime --mime-type "
        "--mime-encoding --apple --keep-going --list --dereference --no-dereference --no-buffer --no-pad "
        "--preserve-date --parameter= --raw --special-files --print0 --debug --no-sandbox",
        lists="-f= --files-from=",
        asks="-C --compile -m= --magic-file= -z -Z --uncompress --uncompress-noreport",
    ),
    "stat": Program(
        plain="-L -f -c= -t --dereference --file-system --cached= --format= --printf= --terse -x -s"
    ),
    "du": Program(
        plain="-0 -a -B= -b -c -d= -h -H -D -k -l -m -P -s -S -t= -x --null --all --apparent-size "
        "--block-size= --bytes --total --max-depth= --human-readable --inodes --count-links "
        "--no-dereference --separate-dirs --si --summarize --threshold= --time? --time-style= --exclude= "
        "--one-file-system --dereference-args",
        reads="-X= --exclude-from=",
        lists="--files0-from=",
        asks="-L --dereference",
        without=".",
        everything="-a --all",
        is_listing=True,
    ),
    "df": Program(
        plain="-a -B= -h -H -i -k -l -P -t= -T -x= -v --all --block-size= --human-readable --si "
        "--inodes --local --no-sync --output? --portability --total --type= --print-type --exclude-type="
    ),
    "tree": Program(
        plain="-a -d -f -x -L= -P= -I= -i -q -N -Q -p -u -g -s -h -D -F -v -t -c -U -r -S -n -C -X -J "
        "-A --ignore-case --matchdirs --prune --noreport --charset= --filelimit= --timefmt= --du --si "
        "--dirsfirst --filesfirst --sort= --inodes --device --nolinks --gitignore --metafirst --noreport "
        "--hintro= --houtro=",
        writes="-o=",
        reads="--gitfile= --infofile=",
        asks="-l -R -H= --fromfile --info",
        without=".",
        searches="visible",
        everything="-a",
        is_listing=True,
    ),
    "ls": _LIST,
    "dir": _LIST,
    "vdir": _LIST,
    "grep": GREP,
    "egrep": GREP,
    "fgrep": GREP,
    "readlink": Program(
        plain="-f -e -m -n -q -s -v -z --canonicalize --canonicalize-existing --canonicalize-missing "
        "--no-newline --quiet --silent --verbose --zero"
    ),
    "realpath": Program(
        plain="-e -m -L -P -q -s -z --canonicalize-existing --canonicalize-missing --logical "
        "--physical --quiet --strip --no-symlinks --zero -E --canonicalize",
        reads="--relative-to= --relative-base=",
    ),
    "jq": Program(
        operands="text read*",
        plain="-r -c -n -s -e -a -j -S -C -M -R -h -b --raw-output --raw-output0 --compact-output "
        "--null-input --slurp --exit-status --ascii-output --join-output --sort-keys --color-output "
        "--monochrome-output --raw-input --tab --indent= --arg== --argjson== --args --jsonargs --seq "
        "--stream --stream-errors --unbuffered --binary",
        reads="-f= --from-file= --slurpfile== --rawfile== --argfile==",
        asks="-L= --library-path= --run-tests",
        stands_in="-f --from-file",
    ),
}

PRINTERS: Mapping[str, Program] = {
    name: Program(operands="text*", plain=plain)
    for name, plain in {
        "basename": "-a -s= -z --multiple --suffix= --zero",
        "dirname": "-z --zero",
        "seq": "-f= -s= -w --format= --separator= --equal-width",
        "sleep": "",
        "expr": "",
        "which": "-a --all",
        "whoami": "",
        "id": "-a -g -G -n -r -u -z -Z --context --group --groups --name --real --user --zero",
        "groups": "",
        "uname": "-a -s -n -r -v -m -p -i -o --all --kernel-name --nodename --kernel-release "
        "--kernel-version --machine --processor --hardware-platform --operating-system",
        "nproc": "--all --ignore=",
        "arch": "",
        "uptime": "-p -s --pretty --since",
        "tty": "-s --silent --quiet",
        "free": "-b -k -m -g -h -w -t -l -v -s= -c= --human --wide --total --bytes --kilo --mega --giga --tera "
        "--peta --kibi --mebi --gibi --tebi --pebi --si --lohi --committed --seconds= --count=",
        "locale": "-a -m -c -k -v --all-locales --charmaps --category-name --keyword-name --verbose --usage",
        "getconf": "-a -v=",
        "numfmt": "-d= -z --from= --to= --field= --suffix= --format= --padding= --header? --round= "
        "--grouping --debug --delimiter= --from-unit= --to-unit= --invalid= --zero-terminated",
        "cal": "-1 -3 -j -m -y -s",
        "printenv": "-0 --null",
    }.items()
} | {
    "whereis": Program(operands="text*", plain="-b -m -s -u -l", asks="-B -M -S -f"),
    "hostname": Program(operands="", plain="-a -d -f -i -I -s --alias --domain --fqdn --long "
    "--all-ip-addresses --short"),
    "date": Program(
        operands="format",
        plain="-d= -I? -R -u --date= --debug --iso-8601? --resolution --rfc-email --rfc-2822 "
        "--rfc-3339= --utc --universal",
        reads="-f= --file= -r= --reference=",
        asks="-s= --set=",
    ),
}  # fmt: skip
"""They print what they are given, or what the machine is. The environment of a command has nothing private in it."""

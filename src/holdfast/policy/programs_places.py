"""Where programs write that nobody reads completely: builds, packages, converters, databases, and others.

Each of them makes a person look, because it runs what a project says, or does more than its words tell. But where its
words name the file or the folder that it writes, or in which it works, that is known. A row has only these words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from holdfast.policy.programs_options import Program, operand_uses, reading_of, uses_by_row
from holdfast.policy.simple import SimpleCommand, Word
from holdfast.policy.uses import NOTHING, Use, Uses, merged

_MAKES = "make*"
_ALL_BUT_LAST = "read* make"


def _row(writes: str = "", operands: str = "text*", plain: str = "", reads: str = "") -> Program:
    return Program(operands=operands, writes=writes, plain=plain, reads=reads)


def _rows(*rows: tuple[str, Program]) -> Mapping[str, Program]:
    return {name: row for names, row in rows for name in names.split()}


_COMPILER = _row(
    "-o= --output= -MF= -dumpdir= -odir= -hidir= -outputdir=",
    plain="-I= -L= -D= -U= -l= -T= -x= -MT= -MQ= -include= -isystem= -c -g -S -E -s",
)
_BUILDS = _rows(
    ("gcc g++ cc c++ clang clang++ gfortran cpp tcc nvcc swiftc ghc ocamlc ocamlopt nasm yasm as", _COMPILER),
    ("ld gold lld ld.lld ld.gold", _row("-o= --output= -Map= --Map=", plain="-L= -l= -T= -e=")),
    ("objcopy", _row(operands="read make", plain="-O= -I= -j= -R= -S -g")),
    ("strip ranlib", _row("-o=", _MAKES, plain="-s -g -d -S -x -X -K= -N= -R=")),
    ("lipo", _row("-output= -o=")),
    ("windres", _row("-o= --output=")),
    ("rustc", _row("-o= --out-dir=", plain="-L= -l= -C= -A= -W= -D= --extern= --cfg= --edition= --target=")),
    ("go", _row("-o= -C= -coverprofile= -cpuprofile= -memprofile= -outputdir= -trace= -modfile= -pkgdir=")),
    (
        "cargo",
        _row(
            "--target-dir= --manifest-path= --root= -C= --out-dir= --artifact-dir=",
            plain="-p= --package= --bin= --example= --features= -F= --target= -j= --profile= -Z= --color= --config=",
        ),
    ),
    ("javac javadoc kotlinc scalac groovyc", _row("-d= -h= -s=", plain="-cp= -classpath= -source= -target=")),
    ("native-image", _row("-o=")),
    ("dotnet", _row("-o= --output= --artifacts-path= --results-directory= --project=")),
    ("swift", _row("-C= --package-path= --scratch-path= --build-path= --cache-path=")),
    ("zig", _row("-p= --prefix= --cache-dir= --global-cache-dir= -femit-bin= --build-file=")),
    (
        "tsc",
        _row("--outDir= --outFile= --declarationDir= --tsBuildInfoFile=", reads="-p= --project= -b= --build="),
    ),
    ("esbuild", _row("--outfile= --outdir= --metafile=")),
    ("webpack vite parcel", _row("-o= --output-path= --outDir= -d= --dist-dir= --cache-dir=", plain="-c= --config=")),
    ("rollup swc babel postcss", _row("-o= --file= --out-file= -d= --dir= --out-dir= --output=", plain="-c= -f=")),
    ("sass lessc", _row(operands="read make", plain="--load-path= -I=")),
    ("terser uglifyjs svgo", _row("-o= --output=")),
    ("make gmake bmake", _row("-C= --directory=", plain="-j? -k -n -B -s -i -w -o= -W= -I= -l?",
                              reads="-f= --file= --makefile=")),
    ("ninja samu", _row("-C=", plain="-j= -k= -l= -d= -t= -v -n", reads="-f=")),
    (
        "cmake",
        _row("-B= --build= --install= --prefix= --graphviz=", "read*", "-D= -U= -G= -T= -A= -t= -j? --target= "
             "--config= --preset= --component= --parallel? -v", "-S= -C= -P="),
    ),
    ("cmake__-E", _row(operands="text make*")),
    ("ctest cpack", _row("-B= --test-dir= -O= --output-log= --output-junit=")),
    ("meson", _row("-C= --destdir=")),
    ("meson__setup", _row(operands="make read", plain="-D= --prefix= --buildtype= --cross-file= --native-file= "
                          "--backend= --wrap-mode=")),
    ("scons rake", _row("-C= --directory=", reads="-f= --rakefile=")),
    ("just task", _row("-d= --working-directory= --dir=", reads="-f= --justfile= -t= --taskfile=")),
    ("bazel", _row("--output_base= --output_user_root= --symlink_prefix=")),
    ("mvn mvnw", _row("-l= --log-file=", plain="-P= -pl= -s= -D= -T=", reads="-f= --file=")),
    ("gradle gradlew", _row("-p= --project-dir= -g= --gradle-user-home= --project-cache-dir=", reads="-b=")),
    ("ant", _row("-l= -logfile=", reads="-f= -file= -buildfile=")),
    ("tox nox", _row("--workdir= --root= --envdir=", reads="-c= --conf= -f= --noxfile=")),
    (
        "pytest py.test",
        _row("--basetemp= --junitxml= --junit-xml= --log-file= --html= --rootdir=",
             plain="-o= -k= -m= -n= -p= -W= -r= --tb= --cov= --durations=", reads="-c= --confcutdir="),
    ),
    ("jest vitest mocha", _row("--coverageDirectory= --outputFile= --cacheDirectory= --rootDir= --root=")),
    ("coverage", _row("-d= --directory= -o= --data-file=", plain="-m= --include= --omit=", reads="--rcfile=")),
    ("mypy", _row("--cache-dir= --html-report= --xml-report= --txt-report= --junit-xml=", plain="-p= -m= -c=")),
    ("eslint", _row("-o= --output-file= --cache-location=", plain="-c= --config= -f= --ext=")),
    ("protoc", _row(
        "-o= --descriptor_set_out= --python_out= --pyi_out= --cpp_out= --java_out= --kotlin_out= --go_out= "
        "--go-grpc_out= --js_out= --ts_out= --csharp_out= --ruby_out= --php_out= --objc_out= --rust_out= "
        "--swift_out= --grpc_out= --grpc_python_out=", plain="-I= --proto_path=")),
    ("thrift flatc swig", _row("-o= -out= -outdir=")),
    ("bison yacc flex lex", _row("-o= --output= --output-file= --outfile= --header-file= -b= --file-prefix=")),
    ("m4 re2c ragel xsltproc xmllint", _row("-o= --output=")),
    ("xgettext msgfmt msgmerge msgcat", _row("-o= --output= --output-file= -p= --output-dir=", plain="-d= -L= -k?")),
    ("sphinx-build", _row("-d= -w=", "read make read*", plain="-b= -D= -A= -j= -t=", reads="-c=")),
    ("mkdocs hugo jekyll", _row("-d= --site-dir= --destination=", reads="-f= -s= --source=")),
    ("pyinstaller", _row("--distpath= --workpath= --specpath=")),
    ("jupyter", _row("--output= --output-dir=")),
)  # fmt: skip

_INSTALLS = _rows(
    (
        "pip pip3",
        _row("-t= --target= --prefix= --root= -d= --dest= -w= --wheel-dir= --log= --src= --cache-dir= --report= "
             "-e= --editable=", plain="-i= --index-url= --extra-index-url= -f= --find-links= --platform= "
             "--python-version=", reads="-r= --requirement= -c= --constraint="),
    ),
    ("virtualenv venv", _row(operands=_MAKES, plain="-p= --python= --prompt= --app-data= --seeder= --creator=")),
    ("poetry", _row("-C= --directory= -P= --project= -o= --output=")),
    ("pdm", _row("-p= --project= -o= --output=")),
    (
        "uv",
        _row("--directory= --project= --cache-dir= -t= --target= --prefix= -o= --output-file= --out-dir=",
             plain="-p= --python= --extra= --group= --with=", reads="--config-file= -r= --requirements="),
    ),
    ("uv__venv uv__init", _row("--directory= --project= --cache-dir=", _MAKES, "-p= --python= --prompt= --name=")),
    ("conda mamba micromamba", _row("-p= --prefix=", plain="-n= -c= --name= --channel=", reads="-f= --file=")),
    ("npm npx", _row("--prefix= -C= --cache= --pack-destination=", plain="-w= --workspace=")),
    ("yarn bun", _row("--cwd= --modules-folder= --cache-folder= --global-folder= --outdir= --outfile=")),
    ("pnpm", _row("-C= --dir= --prefix= --modules-dir= --store-dir= --virtual-store-dir= --pack-destination=",
                  plain="-F= --filter=")),
    ("deno", _row("-o= --output= --outdir=")),
    ("gem", _row("-i= --install-dir= --bindir= -o= --output=")),
    ("bundle", _row("--path= --binstubs? --gemfile=")),
    ("composer", _row("-d= --working-dir=")),
    ("cargo__new cargo__init poetry__new rails__new", _row("-C=", _MAKES, "--name= --edition= --vcs=")),
    ("dpkg-deb", _row(operands="read make", plain="-x -X -R -e -b -f -c -I -Z= -z=")),
)  # fmt: skip

_OTHERS = _rows(
    ("csplit", _row("-f= --prefix=", "read text*", "-b= -n= -k -s -z --suffix-format= --digits=")),
    ("shuf", _row("-o= --output=", plain="-e -n= -i= -r -z", reads="--random-source=")),
    ("iconv", _row("-o= --output=", "read*", "-f= -t= -c -s -l --from-code= --to-code=")),
    ("ptx", _row(operands="read make")),
    ("link", _row(operands="read make")),
    ("fallocate", _row(operands="make", plain="-l= -o= -n -c -d -x -z -p -i -v --length= --offset=")),
    ("mkfifo", _row(operands=_MAKES, plain="-m= --mode=")),
    ("mknod", _row(operands="make text*", plain="-m= --mode=")),
    ("mktemp", _row("-p= --tmpdir?", "make", "-d -u -q -t --suffix=")),
    ("sponge", _row(operands=_MAKES, plain="-a")),
    ("script", _row("-B= -O= -T= --log-io= --log-out= --log-timing=", "make", "-c= -a -q -e -f -E= --command=")),
    ("logrotate", _row("-s= --state= -l= --log=", plain="-d -f -v -m=")),
    ("ed ex vi vim nvim nano emacs micro", _row(operands=_MAKES, plain="-c= -s -e -E -u= -S= -l= --cmd= --eval= -n")),
    ("sd", _row(operands="text text make*", plain="-F -s -p -n= -f=")),
    (
        "black ruff isort autopep8 yapf autoflake pyupgrade gofmt rustfmt clang-format shfmt prettier dos2unix biome",
        _row("--cache-dir= --output-file=", _MAKES, "-l= -t= -c= -i -w -s -d -q -v -n= -e= -m= --line-length= "
             "--target-version= --config= --style= --select= --ignore= --extend-select= --profile= --parser="),
    ),
    ("perl ruby", _row(operands=_MAKES, plain="-p -n -e= -E= -l? -0? -a -w -s -F= -M? -m? -I= -r= -i?")),
    ("yq", _row("-s=", "text make*", "-i -r -y -P -p= -o= -I= -j -M -C -e -n -N --inplace --in-place")),
    ("sqlite3 duckdb", _row("-A=", "make text*", "-cmd= -separator= -newline= -nullvalue= -vfs=", "-init=")),
    ("psql", _row("-o= --output= -L= --log-file=", plain="-c= -d= -h= -p= -U= -v= -F= -R= -P=", reads="-f= --file=")),
    ("pg_dump pg_dumpall pg_restore", _row("-f= --file=", plain="-d= -h= -p= -U= -F= -t= -n= -j=")),
    ("pg_basebackup initdb pg_ctl", _row("-D= --pgdata= -l= --log= -X= --waldir=")),
    ("mysqldump mysql mariadb mariadb-dump",
     _row("-r= --result-file= -T= --tab= --tee=", plain="-e= -h= -u= -P= -D=")),
    ("redis-cli", _row("--rdb= --functions-rdb=")),
    ("mongodump mongoexport", _row("-o= --out=", plain="-d= -c= -h= -q=")),
    ("gpg gpg2", _row("-o= --output= --homedir= --log-file= --status-file=", plain="-r= -u= -d -e -s -a -c")),
    ("age age-keygen", _row("-o= --output=", plain="-r= -i= -d -e -p -a")),
    ("ssh-keygen", _row("-f=", plain="-t= -b= -N= -C= -P= -m= -O= -a= -I= -n= -V= -z= -R= -F= -y -l -q -p")),
    ("keytool", _row("-keystore= -file=")),
    ("openssl", _row("-out= -keyout= -writerand=")),
    ("convert magick composite montage sox qpdf pdfunite pdftk wkhtmltopdf wkhtmltoimage mksquashfs",
     _row(operands=_ALL_BUT_LAST)),
    ("mogrify", _row("-path=", _MAKES)),
    ("ffmpeg", _row(operands=_MAKES, plain="-i= -f= -c= -t= -y -n -ss= -to= -vf= -af= -filter_complex= -map=")),
    ("lame pdftotext pdftoppm pdfimages pdftocairo pdftohtml ps2pdf weasyprint lz4 rst2html",
     _row(operands="read make", plain="-f= -l= -r= -V= -b= -q -d -z -k")),
    (
        "oggenc flac cwebp dwebp gifsicle rsvg-convert dvips dot neato plantuml img2pdf mmdc asciidoctor pandoc",
        _row("-o= --output= --out-file= -D= --destination-dir= --export-filename= --extract-media= --log= "
             "--data-dir=", plain="-T? -f= -t= -w= -h= -K= -G= -N= -E="),
    ),
    ("pngquant inkscape", _row("-o= --output= --export-filename=")),
    ("optipng jpegoptim jpegtran exiftool", _row("-out= -dir= -d= --dest= -outfile= -o=")),
    ("gs", _row("-sOutputFile= -o=")),
    (
        "tex latex pdflatex xelatex lualatex latexmk bibtex",
        _row("-output-directory= --output-directory= -outdir= -auxdir="),
    ),
    ("soffice libreoffice", _row("--outdir=")),
    ("mkisofs genisoimage xorriso", _row("-o= -output= -outdev= -dev=")),
    ("unsquashfs", _row("-d= -dest=")),
    ("cpio", _row("-D= --directory= -O= -F= --file=", plain="-i -o -p -d -m -u -v -t -H= -0")),
    ("unar", _row("-o= --output-directory=")),
    ("svn__checkout svn__co svn__export hg__clone", _row(operands="text make", plain="-r= --revision= -u= --depth=")),
    ("svn rails", _row("--config-dir=")),
    ("hg", _row("-R= --repository= --cwd= -o= --output=", plain="-r= -m= -u= --config=")),
    ("hg__init hg__archive", _row(operands=_MAKES, plain="-r= -t= -p= -X= -I=")),
    ("gh glab", _row("-D= --dir= -O= --output=", plain="-R= -t= -b= -q= -L= -p= --jq= --repo=")),
    ("nmap", _row("-oN= -oX= -oG= -oA= -oS=")),
    ("tcpdump tshark dumpcap", _row("-w=", plain="-i= -c= -n -v -X -A -s= -f= -Y=", reads="-r= -F=")),
    ("aria2c axel yt-dlp youtube-dl http https xh", _row("-d= --dir= -o= --out= --output= -l= --log= -P= --paths=")),
    ("strace ltrace perf heaptrack", _row("-o= --output=", plain="-f -e= -p= -s= -c -t -T -y -v -g -F= -a -q")),
    ("valgrind", _row("--log-file= --xml-file= --massif-out-file= --callgrind-out-file= --cachegrind-out-file=")),
    ("lcov genhtml gcovr", _row("-o= --output= --output-file= --output-directory=")),
    ("hyperfine", _row("--export-json= --export-csv= --export-markdown=")),
    ("terraform tofu", _row("-chdir= -out= -state= -state-out= -backup=")),
    ("pulumi", _row("-C= --cwd=")),
    ("helm", _row("--output-dir= -d= --destination=", plain="-f= -n= --set=")),
    ("docker-compose", _row("--project-directory=", reads="-f= --file= --env-file=")),
    ("cProfile", _row("-o=")),
    ("node", _row("--cpu-prof-dir= --heap-prof-dir= --diagnostic-dir= --report-dir= --report-directory=")),
)  # fmt: skip

PLACES: Mapping[str, Program] = {**_BUILDS, **_INSTALLS, **_OTHERS}
"""A row for each program, or for a subcommand of one: `uv__venv`."""

_ONLY_WITH: Mapping[str, tuple[str, ...]] = {
    "perl": ("-i",),
    "ruby": ("-i",),
    "yq": ("-i", "--inplace", "--in-place"),
}
"""Options with which a program writes the files that are its operands; without them it does not."""
_INSTALL_VARIABLES = ("DESTDIR", "INSTALL_ROOT", "O")
"""Variables of `make` that say where it writes."""
_VERSION = re.compile(r"-?[0-9.]+\Z")
_CONTAINERS = ("docker", "podman", "nerdctl", "kubectl")
_MOUNTS = Program(
    operands="text*",
    plain="-v= --volume= --mount= -w= -e= -p= -u= --name= --entrypoint= --rm -i -t -d -f= --file= --env-file=",
)
_SOURCE = re.compile(r"(?:\A|,)(?:source|src)=([^,]*)")
_PATH = re.compile(r"[./~]")


def placed_uses(name: str, words: Sequence[Word]) -> Uses:
    """Return the files that the words of a program name as those that it writes, or in which it works.

    Args:
        name: The last part of its path.
        words: The words after it.
    """
    short = _VERSION.sub("", name)
    if short in ("python", "pypy") and len(words) > 1 and words[0].text == "-m":
        return placed_uses(words[1].text, words[2:])
    if name in _CONTAINERS:
        return _of_containers(name, words)
    row = PLACES.get(name) or PLACES.get(short)
    if row is None:
        return NOTHING
    operands = reading_of(row, words).operands
    first = next((word for word in (*words[:1], *operands[:1]) if f"{short}__{word.text}" in PLACES), None)
    if first is not None:
        row = PLACES[f"{short}__{first.text}"]
        words = [word for word in words if word is not first]
    if short in _ONLY_WITH and not reading_of(row, words).has(*_ONLY_WITH[short]):
        row = row._replace(operands="text*")
    installed = _installed(operands) if short in ("make", "gmake") else ()
    of_texts = _in_texts(name if name == "sqlite3" else short, words)
    return merged([uses_by_row(name, row, words), *installed, *of_texts])


_IN_TEXTS: tuple[tuple[frozenset[str], re.Pattern[str]], ...] = (
    (
        frozenset({"gcc", "g++", "cc", "c++", "clang", "clang++", "gfortran"}),
        re.compile(r",(?:-o|-MD|-MMD|-MF|--?Map|--output)[,=]([^,]+)"),
    ),
    (
        frozenset({"sqlite3"}),
        re.compile(
            r"""\A\s*\.(?:output|once|read|save|backup|restore|open|log|cd|clone|import)\s+"""
            r"""(?:-[\w-]*\s+)*["']?([^"'\s]+)"""
        ),
    ),
    (frozenset({"sqlite3", "duckdb"}), re.compile(r"(?i)\battach\s+(?:database\s+)?'([^']+)'")),
    (
        frozenset({"ex", "vi", "vim", "nvim"}),
        re.compile(r"(?:\A|\|)[\s:]*(?:wq?|write|sav|saveas|e|edit|r|read)!?\s+([^\s!|>]+)"),
    ),
)
"""How words of a program name a file in a language of their own: options of a linker, commands of a shell or editor.
"""


def _in_texts(name: str, words: Sequence[Word]) -> Iterator[Uses]:
    """Return the files that words name in a language of the program. Each may be written."""
    for names, pattern in _IN_TEXTS:
        for word in words if name in names else ():
            if word.is_known and (found := pattern.search(word.text)):
                yield operand_uses(name, "make", word._replace(text=found[1]))


def _installed(operands: Sequence[Word]) -> Iterator[Uses]:
    """Return where `make` writes, as its variables say it."""
    for word in operands:
        variable, equals, value = word.text.partition("=")
        if equals and variable in _INSTALL_VARIABLES:
            yield operand_uses("make", "make", word._replace(text=value))


def _of_containers(name: str, words: Sequence[Word]) -> Uses:
    """Return what a container gets of this machine, and what is copied from and to one."""
    reading = reading_of(_MOUNTS, words)
    found = [word._replace(text=word.text.partition(":")[0]) for word in reading.values("-v", "--volume")]
    for word in reading.values("--mount"):
        found += [word._replace(text=text) for text in _SOURCE.findall(word.text)]
    verbs = [word.text for word in reading.operands[:2]]
    if "cp" in verbs:
        found += [word for word in reading.operands[1:] if ":" not in word.text]
    read = [
        *reading.values("-f", "--file", "--env-file"),
        *(reading.operands[-1:] if "build" in verbs else ()),
    ]
    uses = (*[Use("write", word) for word in found], *[Use("read", word) for word in read])
    return Uses(tuple([use for use in uses if use.word.is_known and _PATH.match(use.word.text)]))


_STARTERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("strace", "ltrace", "valgrind", "perf", "watch", "flock", "chrt", "taskset", "unbuffer", "fakeroot",
         "rlwrap", "hyperfine", "entr", "parallel", "script", "direnv", "dotenv", "setpriv", "systemd-run",
         "xvfb-run", "npx", "uvx", "bunx", "cgexec", "numactl", "proot", "heaptrack"), "",
    ),
    **dict.fromkeys(("uv", "poetry", "pdm", "hatch", "rye", "pixi", "pipenv", "conda", "mamba", "pipx"), "run"),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bundle", "rbenv", "pyenv", "mise", "asdf"), "exec"),
}  # fmt: skip
"""Programs that start another one, which follows their options, with the subcommand that does so."""


def started_by(command: SimpleCommand, is_program: Callable[[str], bool]) -> Uses:
    """Return what a program starts, if one of its words is a program that the table has.

    Args:
        command: The whole command.
        is_program: Returns whether the table has a program of this name.
    """
    verb = _STARTERS.get(command.words[0].text)
    words = command.words[1:]
    if verb is None or (verb and verb not in command.texts):
        return NOTHING
    at = next((at for at, word in enumerate(words) if word.is_known and is_program(word.text)), None)
    inner = (command._replace(words=words[at:], assigned=(), redirections=()),) if at is not None else ()
    texts = [word for word in words if word.is_known and not word.is_glob and " " in word.text]
    return Uses(inner=inner, scripts=tuple(texts) if not inner else ())

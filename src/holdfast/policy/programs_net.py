"""Programs that talk to other machines: curl, wget, and those that are not for the web."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from holdfast.policy.programs_options import Program, Reading, reading_of, shown, uses_by_row
from holdfast.policy.programs_places import placed_uses
from holdfast.policy.simple import SimpleCommand, Word
from holdfast.policy.uses import Reader, Use, Uses, merged

_LEADS_AROUND = (
    "--resolve= --connect-to= -x= --proxy= --preproxy= --proxy1.0= --socks4= --socks4a= --socks5= "
    "--socks5-hostname= --unix-socket= --abstract-unix-socket= --doh-url= --dns-servers= --dns-interface= "
    "--dns-ipv4-addr= --dns-ipv6-addr= --interface= --haproxy-clientip= --haproxy-protocol "
    "--ipfs-gateway= --alt-svc="
)
_CURL = Program(
    operands="text*",
    plain="-s -S -f -i -I -v -g -w= -m= -G -R -Z -4 -6 -0 -2 -3 -# -N -q -y= -Y= -r= -A= -H= -X= -O "
    "--silent --show-error --fail --fail-with-body --fail-early --include --head --verbose --globoff "
    "--compressed --write-out= --max-time= --connect-timeout= --retry= --retry-delay= --retry-max-time= "
    "--retry-all-errors --retry-connrefused --get --remote-time --parallel --ipv4 --ipv6 --http1.0 "
    "--http1.1 --http2 --http3 --progress-bar --no-progress-meter --no-buffer --disable --speed-limit= "
    "--speed-time= --limit-rate= --max-filesize= --range= --user-agent= --header= --request= "
    "--remote-name --remote-name-all --create-dirs --proto= --proto-default= --tlsv1.2 --tlsv1.3 "
    "--noproxy= --no-keepalive --keepalive-time= --tcp-nodelay --path-as-is --raw --styled-output "
    "--no-location --url= --cert-type= --key-type= --ciphers= --tls13-ciphers= --tls-max= --curves= --sigalgs= "
    "--create-file-mode= --expect100-timeout= --happy-eyeballs-timeout-ms= --hostpubmd5= --hostpubsha256= "
    "--local-port= --max-redirs= --parallel-max= --proto-redir= --rate= --ftp-method= --ftp-ssl-ccc-mode= "
    "--tftp-blksize= --ip-tos= --vlan-priority= --keepalive-cnt= --trace-config=",
    writes="-o= --output= --output-dir= -D= --dump-header= -c= --cookie-jar= --trace= --trace-ascii= "
    "--stderr= --etag-save= --hsts= --libcurl=",
    reads="-T= --upload-file= --etag-compare= --cacert= --capath= --netrc-file= -E= --cert= --key= "
    "-K= --config= --pinnedpubkey= --crlfile= --proxy-pinnedpubkey= --proxy-cacert= --proxy-capath= "
    "--proxy-crlfile= --proxy-cert= --proxy-key= --pubkey= --random-file= --egd-file= --knownhosts= -z= --time-cond=",
    denies=_LEADS_AROUND,
    asks="-L --location --location-trusted -k --insecure -d= --data= --data-raw= --data-binary= "
    "--data-urlencode= --data-ascii= --json= --url-query= -F= --form= --form-string= -u= --user= -U= "
    "--proxy-user= -b= --cookie= -n --netrc --netrc-optional -J --remote-header-name -C= --continue-at= "
    "-e= --referer= -Q= --quote= -t= --telnet-option= --next -: --oauth2-bearer= --aws-sigv4= --variable= "
    "--engine= --ftp-port= -P= --request-target= --post301 --post302 --post303 --mail-from= --mail-rcpt= "
    "--stdin --ca-native --delegation= --negotiate --ntlm --digest --anyauth --ftp-account= "
    "--ftp-alternative-to-user= --krb= --login-options= --mail-auth= --pass= --proxy-pass= --proxy-header= "
    "--proxy-cert-type= --proxy-key-type= --proxy-ciphers= --proxy-tls13-ciphers= --proxy-service-name= "
    "--service-name= --socks5-gssapi-service= --sasl-authzid= --tlsauthtype= --tlsuser= --tlspassword= "
    "--proxy-tlsauthtype= --proxy-tlsuser= --proxy-tlspassword= --ech= --upload-flags=",
)
_UPLOADS = ("-T", "--upload-file", "-E", "--cert", "--key", "-K", "--config", "--netrc-file")
_PLAIN_HEADERS = (
    "accept:",
    "accept-language:",
    "user-agent:",
    "cache-control:",
    "if-none-match:",
    "if-modified-since:",
)
_READS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def uses_of_curl(command: SimpleCommand, name: str) -> Uses:
    """Return what `curl` sends and writes. Only a plain reading of literal addresses needs no approval of its own."""
    words = command.words[1:]
    reading = reading_of(_CURL, words)
    given = reading.values("--url")
    found = [uses_by_row(name, _CURL, words), Uses(sends=tuple(map(_address, (*given, *reading.operands))))]
    found += [Uses(asks=f"`{name}` {why}.") for why in _curl_doubts(reading)]
    if reading.has("-O", "--remote-name", "--remote-name-all"):
        folder = next(iter(reading.values("--output-dir")), Word("."))
        found.append(
            Uses(tuple([Use("write", _saved_as(folder, url), overwrites=True) for url in reading.operands]))
        )
    return merged(found)


def _curl_doubts(reading: Reading) -> Iterator[str]:
    if reading.has(*_UPLOADS):
        yield "sends a file or its password, or reads more options from one"
    if any(word.text not in _READS_METHODS for word in reading.values("-X", "--request")):
        yield "sends something"
    if any(not word.text.lower().startswith(_PLAIN_HEADERS) for word in reading.values("-H", "--header")):
        yield "sends a header of its own"
    if any(word.text.startswith("@") for word in reading.values("-w", "--write-out")):
        yield "reads a file"
    if any(set("{}[]") & set(word.text) for word in (*reading.operands, *reading.values("--url"))):
        yield "makes several addresses of one"


_WGET = Program(
    operands="text*",
    plain="-q -v -nv -S -t= -T= -w= -c -N -4 -6 --quiet --verbose --no-verbose --server-response "
    "--tries= --timeout= --wait= --continue --timestamping --spider --max-redirect= --no-clobber -nc "
    "--show-progress --progress= -U= --user-agent= --report-speed= --restrict-file-names= --retry-on-http-error= "
    "--start-pos= --dns-timeout= --connect-timeout= --read-timeout= --waitretry= -Q= --quota= --limit-rate= "
    "--prefer-family= --local-encoding= --remote-encoding= --cut-dirs= --default-page= --compression= "
    "--secure-protocol= --certificate-type= --private-key-type= --ciphers= --warc-max-size= -l= --level= -A= "
    "--accept= -R= --reject= --accept-regex= --reject-regex= --regex-type= -D= --domains= --exclude-domains= "
    "--follow-tags= --ignore-tags= -I= --include-directories= -X= --exclude-directories=",
    writes="-O= --output-document= -o= --output-file= -a= --append-output= -P= --directory-prefix= "
    "--save-cookies= --warc-file= --warc-tempdir= --rejected-log= --hsts-file=",
    reads="--post-file= --body-file= --load-cookies= --ca-certificate= --ca-directory= --certificate= --private-key= "
    "--crl-file= --pinnedpubkey= --warc-dedup=",
    asks="--user= --password= --http-user= --http-password= --proxy-user= --proxy-password= --ftp-user= "
    "--ftp-password= --referer= --header= --method= --post-data= --body-data= --warc-header=",
    lists="-i= --input-file=",
    runs="--use-askpass= --execute= -e=",
    denies="--dns-servers= --bind-dns-address= --bind-address= --config=",
    risk="follows redirects to hosts that nobody listed",
)


def uses_of_wget(command: SimpleCommand, name: str) -> Uses:
    """Return what `wget` sends and writes. It always asks, because it follows redirects."""
    words = command.words[1:]
    reading = reading_of(_WGET, words)
    found = [uses_by_row(name, _WGET, words), Uses(sends=tuple(map(_address, reading.operands)))]
    if not reading.has("-O", "--output-document"):
        folder = next(iter(reading.values("-P", "--directory-prefix")), Word("."))
        found.append(Uses(tuple([Use("write", _saved_as(folder, url)) for url in reading.operands])))
    return merged(found)


def _address(word: Word) -> Word:
    return word if "://" in word.text else word._replace(text=f"http://{word.text}")


def _saved_as(folder: Word, url: Word) -> Word:
    """Return the file that a download without a name becomes."""
    try:
        path = urlsplit(_address(url).text).path
    except ValueError:
        path = ""
    name = posixpath.basename(path) or "index.html"
    return Word(posixpath.join(folder.text, name), folder.is_known and url.is_known)


# --- other protocols ------------------------------------------------------------------------------

_PORTS: Mapping[str, int] = {
    "nc": 0, "ncat": 0, "netcat": 0, "telnet": 23, "ssh": 22, "scp": 22, "sftp": 22, "ftp": 21, "ping": 0, "ping6": 0,
    "traceroute": 0, "tracepath": 0, "mtr": 0, "whois": 43, "mosh": 22, "socat": 0, "openssl": 0, "nmap": 0,
}  # fmt: skip
_HAS_PORT = frozenset({"nc", "ncat", "netcat", "telnet"})
_ASKS_DNS = frozenset(
    {"nslookup", "dig", "host", "drill", "kdig", "delv", "resolvectl", "systemd-resolve", "adnshost"}
)


def uses_of_dns(_: SimpleCommand, name: str) -> Uses:
    """Return that a question to the name service is a way out for data, whatever it asks."""
    return Uses(denies=f"`{name}` can send anything to anybody through the name service.")


_SSH_VALUES = "-c= -F= -i= -J= -o="
_ROWS: Mapping[str, Program] = {
    "ssh": Program(
        plain=f"{_SSH_VALUES} -4 -6 -A -a -C -f -G -g -K -k -M -N -n -q -s -T -t -V -v -X -x -Y -y -B= -b= -D= -E= "
        "-e= -I= -L= -l= -m= -O= -P= -p= -Q= -R= -S= -W= -w=",
        is_ordered=True,
    ),
    "scp": Program(
        plain=f"{_SSH_VALUES} -3 -4 -6 -A -B -C -O -p -q -R -r -s -T -v -D= -l= -P= -S= -X=",
    ),
    "sftp": Program(
        plain=f"{_SSH_VALUES} -4 -6 -A -a -C -f -N -p -q -r -v -B= -b= -D= -l= -P= -R= -S= -s= -X=",
    ),
    "mosh": Program(
        plain="-4 -6 -a -n -p= --port= --client= --server= --predict= --family= --bind-server= --ssh= --no-init "
        "--ssh-pty --no-ssh-pty --local --experimental-remote-ip=",
        is_ordered=True,
    ),
    "ftp": Program(plain="-4 -6 -A -a -d -e -g -i -n -p -t -v -V -P= -s= -o= -N= -q= -r= -T= -u="),
    "telnet": Program(plain="-4 -6 -8 -a -c -d -E -F -f -K -L -r -x -b= -e= -k= -l= -n= -S= -X="),
    "whois": Program(plain="-H -h= -p= -i= -T= -s= -t= -v= -g= -q="),
    **dict.fromkeys(
        ("ping", "ping6"),
        Program(
            plain="-4 -6 -a -A -B -b -C -d -D -f -h -H -L -n -O -q -r -R -U -v -V -3 -c= -e= -F= -i= -I= -l= -m= -M= "
            "-N= -p= -Q= -s= -S= -t= -T= -w= -W=",
        ),
    ),
    "traceroute": Program(
        plain="-4 -6 -d -F -I -T -U -n -r -A -V -e -f= -g= -i= -m= -N= -p= -t= -l= -q= -s= -z= -w= -O= -M= -P="
    ),
    "tracepath": Program(plain="-4 -6 -n -b -V -l= -m= -p="),
    "mtr": Program(
        plain="-4 -6 -n -b -r -w -t -g -p -l -x -j -C -z -u -T -S -e -v -h -F= -c= -i= -s= -B= -Q= -G= -Z= -a= -f= "
        "-m= -U= -P= -L= -o= -y= -I= -X= -N="
    ),
}
"""The options of programs whose options may take values, which are no hosts."""
_PORT_OPTIONS: Mapping[str, str] = {"ssh": "-p", "scp": "-P", "sftp": "-P", "ftp": "-P", "whois": "-p"}
_OF_SSH = frozenset({"ssh", "scp", "sftp"})
_WITH_COLON = frozenset({"scp", "openssl", "socat"})
"""Programs that need a colon after a host."""
_WITH_PATH = frozenset({"scp", "sftp"})
"""Programs that take what follows the colon for a path."""
_SCHEME = re.compile(r"(?:ssh|scp|sftp)://([^/]*)", re.IGNORECASE)
_SETTING = re.compile(r"\s*([a-z]+)\s*[=\s]\s*(.*)", re.IGNORECASE | re.DOTALL)
_AROUND = frozenset({"proxycommand", "include"})
"""Settings of ssh with which it may talk to another machine than the one that it names."""


def uses_of_connector(command: SimpleCommand, name: str) -> Uses:
    """Return the hosts of a command that talks to another machine in its own protocol. It always asks."""
    words = command.words[1:]
    reading = _reading_of(name, words)
    operands, ports = [*reading.operands], [*reading.values(_PORT_OPTIONS.get(name, ""))]
    if (
        not operands and name not in _OF_SSH
    ):  # another version of the program may know the option without a value
        operands = [word for word in words if word.text[:1] != "-"]
    if name in _HAS_PORT and len(operands) > 1 and operands[-1].text.isdecimal():
        ports = [operands.pop()]
    hosts = operands if name in _WITH_COLON else operands[-1:] if name in _HAS_PORT else operands[:1]
    if name == "ssh":
        hosts = [*reading.values("-P"), *hosts]  # before OpenSSH 9.4, it has no value
    if name == "whois" and reading.has("-h"):
        hosts = [*reading.values("-h")]
    hosts = [word for word in hosts if _is_host(word, name)]
    copied = []
    if name == "scp":
        copied = [Use("read", word, deep="links") for word in operands[:-1] if not _is_host(word, name)]
        copied += [Use("write", word) for word in operands[-1:] if not _is_host(word, name)]
    uses = Uses(tuple(copied), asks=f"`{name}` talks to another machine.")
    return merged([uses, _to_hosts(name, reading, hosts, ports), placed_uses(name, words)])


def _reading_of(name: str, words: Sequence[Word]) -> Reading:
    if name not in _ROWS:
        return Reading((), tuple([word for word in words if word.text[:1] != "-"]), "")
    reading = reading_of(_ROWS[name], words)
    if name != "ssh":
        return reading
    after = reading_of(_ROWS[name], reading.operands[1:])  # ssh also takes options after the host
    return Reading((*reading.given, *after.given), reading.operands[:1], reading.strange or after.strange)


def _to_hosts(name: str, reading: Reading, hosts: Sequence[Word], ports: Sequence[Word]) -> Uses:
    """Return the machines to which a command talks, also by its options."""
    if name not in _OF_SSH:
        return Uses(sends=tuple(_hosts(hosts, ports, name)))
    settings = [(found, word) for word in reading.values("-o") if (found := _SETTING.fullmatch(word.text))]
    given: dict[str, list[Word]] = {}
    for found, word in settings:
        given.setdefault(found[1].casefold(), []).append(word._replace(text=found[2].strip("\"' ")))
    if hosts:
        hosts = given.get("hostname", hosts)
    jumps = [
        word._replace(text=each)
        for word in (*reading.values("-J"), *given.get("proxyjump", ()))
        for each in word.text.split(",")
        if each.casefold() != "none"
    ]
    sends = [*_hosts(jumps, (), "ssh"), *_hosts(hosts, (*ports, *given.get("port", ())), name)]
    if not all(word.is_known for word in reading.values("-o", "-F")):
        sends = [word._replace(is_known=False) for word in sends]
    around = [*_AROUND.intersection(given), *(["-F"] if _is_configured(reading) else [])]
    why = f"`{around[0]}` of `{name}` may lead around the list of hosts." if around else ""
    return Uses(sends=tuple(sends), denies=why)


def _is_configured(reading: Reading) -> bool:
    return any(word.text not in ("none", "/dev/null") for word in reading.values("-F"))


def _is_host(word: Word, name: str) -> bool:
    if name == "scp" and not _SCHEME.match(word.text):
        return "/" not in word.text.partition(":")[0] and ":" in word.text
    return ":" in word.text if name in _WITH_COLON else True


def _hosts(words: Iterable[Word], ports: Sequence[Word], name: str) -> Iterator[Word]:
    for word in words:
        for port in ports or (Word(str(_PORTS[name] or "")),):
            yield _host(word, port, name)


def _host(word: Word, port: Word, name: str) -> Word:
    text = word.text
    if found := _SCHEME.match(text):
        text, name = found[1], "ssh"
    if name == "socat":
        text = text.partition(":")[2].partition(",")[0]
    elif name in _WITH_PATH:
        text = text.partition(":")[0]
    host, _, rest = text.rpartition("@")[2].partition(":")
    number = rest if rest.isdecimal() else port.text[:6]
    is_known = word.is_known and (port.is_known or number == rest)
    return word._replace(text=f"http://{shown(host)}" + (f":{number}" if number else ""), is_known=is_known)


NET_READERS: Mapping[str, Reader] = {
    "curl": uses_of_curl,
    "wget": uses_of_wget,
    **dict.fromkeys(_ASKS_DNS, uses_of_dns),
    **dict.fromkeys(_PORTS, uses_of_connector),
}

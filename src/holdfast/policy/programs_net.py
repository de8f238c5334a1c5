"""Programs that talk to other machines: curl, wget, and those that are not for the web."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
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
    "--no-location --url=",
    writes="-o= --output= --output-dir= -D= --dump-header= -c= --cookie-jar= --trace= --trace-ascii= "
    "--stderr= --etag-save= --hsts= --libcurl=",
    reads="-T= --upload-file= --etag-compare= --cacert= --capath= --netrc-file= -E= --cert= --key= "
    "-K= --config=",
    denies=_LEADS_AROUND,
    asks="-L --location --location-trusted -k --insecure -d= --data= --data-raw= --data-binary= "
    "--data-urlencode= --data-ascii= --json= --url-query= -F= --form= --form-string= -u= --user= -U= "
    "--proxy-user= -b= --cookie= -n --netrc --netrc-optional -J --remote-header-name -C= --continue-at= "
    "-e= --referer= -Q= --quote= -t= --telnet-option= --next -: --oauth2-bearer= --aws-sigv4= --variable= "
    "--engine= --ftp-port= -P= --request-target= --post301 --post302 --post303 --mail-from= --mail-rcpt= "
    "--stdin --ca-native --delegation= --negotiate --ntlm --digest --anyauth",
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
    "--show-progress --progress= -U= --user-agent=",
    writes="-O= --output-document= -o= --output-file= -a= --append-output= -P= --directory-prefix= "
    "--save-cookies= --warc-file=",
    reads="--post-file= --body-file= --load-cookies= --ca-certificate= --certificate= --private-key=",
    lists="-i= --input-file=",
    runs="--use-askpass= --execute= -e=",
    denies="--dns-servers= --bind-dns-address= --bind-address=",
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


def uses_of_connector(command: SimpleCommand, name: str) -> Uses:
    """Return the hosts of a command that talks to another machine in its own protocol. It always asks."""
    operands = [word for word in command.words[1:] if word.text[:1] != "-"]
    port = _PORTS[name]
    if name in _HAS_PORT and len(operands) > 1 and operands[-1].text.isdecimal():
        port = int(operands.pop().text[:6])
    hosts = (
        operands
        if name in ("scp", "openssl", "socat")
        else operands[-1:]
        if name in _HAS_PORT
        else operands[:1]
    )
    sends = tuple([_host(word, port, name) for word in hosts if _is_host(word, name)])
    copied = [
        Use("read", word, deep="links") for word in operands[:-1] if name == "scp" and ":" not in word.text
    ]
    if name == "scp":
        copied += [Use("write", word) for word in operands[-1:] if ":" not in word.text]
    uses = Uses(tuple(copied), sends=sends, asks=f"`{name}` talks to another machine.")
    return merged([uses, placed_uses(name, command.words[1:])])


def _is_host(word: Word, name: str) -> bool:
    return ":" in word.text if name in ("scp", "openssl", "socat") else True


def _host(word: Word, port: int, name: str) -> Word:
    text = word.text.rpartition("@")[2] if name != "socat" else word.text.partition(":")[2].partition(",")[0]
    host, _, rest = text.partition(":")
    number = rest if rest.isdecimal() else str(port) if port else ""
    return word._replace(text=f"http://{shown(host)}:{number}" if number else f"http://{shown(host)}")


NET_READERS: Mapping[str, Reader] = {
    "curl": uses_of_curl,
    "wget": uses_of_wget,
    **dict.fromkeys(_ASKS_DNS, uses_of_dns),
    **dict.fromkeys(_PORTS, uses_of_connector),
}

"""A control plane that believes only signed requests: Alibaba Cloud's request signature V3, written a second time."""

import hashlib
import hmac
import json
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from waiting import BUSY_S

KEY_ID = "LTAI-test-id"
SECRET = "test/secret+with=odd~characters"


class Refused(Exception):
    pass


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def verify(method, target, headers, body, used_nonces, secret=SECRET):
    """Raises Refused unless the request is signed; `headers` is a list of (name, value) as received."""
    fields = {}
    for name, value in headers:
        if name.lower() in fields:
            raise Refused(f"two fields {name}")
        fields[name.lower()] = value.strip()
    algorithm, _, rest = fields.get("authorization", "").partition(" ")
    if algorithm != "ACS3-HMAC-SHA256":
        raise Refused(f"algorithm {algorithm!r}")
    parts = dict(part.split("=", 1) for part in rest.split(","))
    if parts["Credential"] != KEY_ID:
        raise Refused("key id")
    names = parts["SignedHeaders"].split(";")
    needed = {"host", *(n for n in fields if n == "content-type" or n.startswith("x-acs-"))}
    if names != sorted(names) or set(names) != needed:
        raise Refused(f"signed are {names}, needed {sorted(needed)}")
    if fields["x-acs-content-sha256"] != sha256(body):
        raise Refused("hash of the body")
    age = abs(datetime.now(timezone.utc) - datetime.strptime(fields["x-acs-date"], "%Y-%m-%dT%H:%M:%S%z"))
    if age > timedelta(minutes=15):
        raise Refused(f"date is {age} off")
    if fields["x-acs-signature-nonce"] in used_nonces:
        raise Refused("nonce was used before")
    used_nonces.add(fields["x-acs-signature-nonce"])
    url = urlsplit(target)
    path = "/".join(quote(unquote(segment), safe="-_.~") for segment in (url.path or "/").split("/"))
    query = "&".join(
        f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}"
        for k, v in sorted(parse_qsl(url.query, keep_blank_values=True), key=lambda kv: (kv[0].encode(), kv[1].encode()))
    )
    lines = [method, path, query, *(f"{n}:{fields[n]}" for n in names), "", ";".join(names), sha256(body)]
    to_sign = "ACS3-HMAC-SHA256\n" + sha256("\n".join(lines).encode())
    if parts["Signature"] != hmac.new(secret.encode(), to_sign.encode(), hashlib.sha256).hexdigest():
        raise Refused("signature does not match:\n" + "\n".join(lines))


class Peer:
    """Answers every signed request with `answers` in turn, the last one for ever; others with 401 and why."""

    def __init__(self, answers):
        self.answers, self.requests, self.refusals, self.nonces = answers, [], [], set()
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                peer.requests.append((self.command, self.path, self.headers.items(), body))
                status, answer = peer.answers.pop(0) if len(peer.answers) > 1 else peer.answers[0]
                try:
                    verify(self.command, self.path, self.headers.items(), body, peer.nonces)
                except Refused as e:
                    peer.refusals.append(str(e))
                    status, answer = 401, {"code": 401, "message": str(e)}
                data = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Content-Type", "application/json")
                if status == 503:
                    self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = do_PUT = handle_any

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join(BUSY_S)
        self.server.server_close()

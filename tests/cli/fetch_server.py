"""A web server with the faults of real ones, for fetch_cli_test.cpp: fetch_server.py FOLDER PORT_FILE REQUESTS_FILE.

The first part of the address is the fault, the last the file in FOLDER:
  ok           ranges are answered
  cut          the first answer for a file ends in its middle; ranges are answered
  cut-twice    the first two do
  no-ranges    the first answer is cut, and ranges are ignored: the whole file comes again
  sometimes    the first two answers are 500, the third is good
  busy         the first answer is 429
  broken       always 500
  missing      always 404
  other        other bytes, as many
  once-other   other bytes the first time
  longer       one byte more
  shorter      one byte less, and the answer says so
  page         200 with a page of HTML
Each request becomes a line "ADDRESS RANGE" of REQUESTS_FILE.
"""
import http.server
import os
import sys
import threading

FOLDER, PORT_FILE, REQUESTS_FILE = sys.argv[1:4]
lock = threading.Lock()
seen = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, code, body, headers=(), only=None):
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:only] if only is not None else body)
        self.wfile.flush()
        if only is not None:
            self.close_connection = True

    def do_GET(self):
        fault, name = self.path.strip("/").split("/")[0], self.path.split("/")[-1]
        asked = self.headers.get("Range")
        with lock:
            seen[self.path] = seen.get(self.path, 0) + 1
            turn = seen[self.path]
            with open(REQUESTS_FILE, "a") as f:
                f.write(f"{self.path} {asked or '-'}\n")
        if fault == "missing":
            return self.send(404, b"no such file")
        if fault == "broken" or (fault == "sometimes" and turn <= 2):
            return self.send(500, b"the server is ill")
        if fault == "busy" and turn == 1:
            return self.send(429, b"too many requests")
        if fault == "page":
            return self.send(200, b"<html>please log in</html>")
        with open(os.path.join(FOLDER, name), "rb") as f:
            body = f.read()
        if fault == "other" or (fault == "once-other" and turn == 1):
            body = bytes(b ^ 1 for b in body)
        if fault == "longer":
            body += b"x"
        if fault == "shorter":
            body = body[:-1]
        begin = 0
        if asked and fault != "no-ranges":
            begin = int(asked.removeprefix("bytes=").rstrip("-"))
            if begin >= len(body):
                return self.send(416, b"", [("Content-Range", f"bytes */{len(body)}")])
        headers = [("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")] if begin else []
        rest = body[begin:]
        cut = (fault in ("cut", "no-ranges") and turn == 1) or (fault == "cut-twice" and turn <= 2)
        self.send(206 if begin else 200, rest, headers, len(rest) // 2 if cut else None)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(PORT_FILE + ".new", "w") as f:
    f.write(str(server.server_address[1]))
os.rename(PORT_FILE + ".new", PORT_FILE)
server.serve_forever()

#!/usr/bin/env python3
"""Makes a small test report of a large one: strip_report.py IN.ncu-rep OUT.ncu-rep FIRST COUNT [CSV_IN CSV_OUT]...

Keeps results FIRST..FIRST+COUNT-1 without what a report must not carry into a repository: cubins, host name, addresses, command line,
sections, the values per instance beyond the third of a metric. Strings, metrics and NVTX stacks stay as they are. CSV tables of the same
report lose the same rows, and the host name. Development only: neither the program nor its tests run it.
"""
import csv, struct, sys

def varint(b, i):
    r = s = 0
    while True:
        c = b[i]; i += 1; r |= (c & 127) << s; s += 7
        if c < 128: return r, i

def fields(b):
    i = 0
    while i < len(b):
        begin = i
        k, i = varint(b, i)
        w = k & 7
        if w == 0: v, i = varint(b, i)
        elif w == 2: n, i = varint(b, i); v = b[i:i + n]; i += n
        elif w == 1: v = b[i:i + 8]; i += 8
        else: v = b[i:i + 4]; i += 4
        yield k >> 3, w, v, b[begin:i]

def enc(n):
    out = b''
    while n > 127: out += bytes([n & 127 | 128]); n >>= 7
    return out + bytes([n])

def put(field, value):
    return enc(field << 3 | 2) + enc(len(value)) + value if isinstance(value, bytes) else enc(field << 3) + enc(value)

def keep(message, wanted):
    return b''.join(raw for f, _, _, raw in fields(message) if f in wanted)

def metric(m):
    out, instances = b'', 0
    for f, _, _, raw in fields(m):
        if f == 3:
            instances += 1
            if instances > 3: continue
        out += raw
    return out

def result(m):
    out = b''
    for f, _, v, raw in fields(m):
        if f in (17, 18, 19, 28, 32, 33, 34): continue
        if f == 13: raw = put(13, metric(v))
        if f == 21: raw = put(21, keep(v, {2, 3, 4}))
        if f == 15: raw = put(15, b'\x08\x01')
        out += raw
    return out

def session(m):
    return b''.join(put(11, b'ncu') if f == 11 else raw for f, _, _, raw in fields(m) if f in (2, 8, 11))

def main():
    src, dst, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    d = open(src, 'rb').read()
    n = struct.unpack_from('<I', d, 4)[0]
    out = d[:8 + n]; p = 8 + n; seen = 0
    while p < len(d):
        h = struct.unpack_from('<I', d, p)[0]; head = d[p + 4:p + 4 + h]; p += 4 + h
        f = {}
        for k, _, v, _ in fields(head): f[k] = v
        q, payload, kept = p, b'', 0
        for i in range(f.get(1, 0) + f.get(2, 0)):
            size = struct.unpack_from('<I', d, q)[0]; m = d[q + 4:q + 4 + size]; q += 4 + size
            if i < f.get(1, 0): continue
            if first <= seen < first + count:
                r = result(m); payload += struct.pack('<I', len(r)) + r; kept += 1
            seen += 1
        p += f.get(5, 0)
        new = put(2, kept)
        if 3 in f: new += put(3, session(f[3]))
        if 4 in f: new += put(4, f[4])
        new += put(5, len(payload))
        if 6 in f: new += put(6, keep(f[6], {1}) + put(3, b'stepscope'))
        if kept or f.get(4) or 3 in f: out += struct.pack('<I', len(new)) + new + payload
    open(dst, 'wb').write(out)
    for a, b in zip(sys.argv[5::2], sys.argv[6::2]):
        rows = list(csv.reader(l for l in open(a) if not l.startswith('==')))
        host = rows[0].index('Host Name')
        keep_rows = [r for r in rows[1:] if r[0] == '' or first <= int(r[0]) < first + count]
        for r in keep_rows:
            if r[0]: r[host] = 'host'; r[2] = 'stepscope'
        with open(b, 'w') as o: csv.writer(o, quoting=csv.QUOTE_ALL, lineterminator='\n').writerows([rows[0]] + keep_rows)

main()

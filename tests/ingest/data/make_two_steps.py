#!/usr/bin/env python3
"""Makes two_steps.sqlite: an export of Nsight Systems as small as one can be, with the tables and columns that `ingest` reads. Two steps of
two kernels and a copy; the times are made up."""
import os
import sqlite3

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "two_steps.sqlite")
PROCESS = 77 << 24
THREAD = PROCESS + 78
TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT, globalPid INT, demangledName INT, "
    "shortName INT, registersPerThread INT, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT, staticSharedMemory INT, "
    "dynamicSharedMemory INT, graphNodeId INT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INT, end INT, globalTid INT, correlationId INT, nameId INT",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, bytes INT, copyKind INT",
    "NVTX_EVENTS": "start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT, domainId INT",
    "TARGET_INFO_GPU": "name TEXT, smCount INT, chipName TEXT, computeMajor INT, computeMinor INT",
}


def main():
    if os.path.exists(PATH):
        os.remove(PATH)
    db = sqlite3.connect(PATH)
    db.execute("PRAGMA page_size = 512")
    for table, columns in TABLES.items():
        db.execute(f"CREATE TABLE {table} ({columns})")

    def row(table, *values):
        db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    row("TARGET_INFO_GPU", "Test GPU", 132, "GH100", 9, 0)
    for i, text in enumerate(["void f<(int)4>(float *)", "g", "forward/0/qkv"], 1):
        row("StringIds", i, text)
    correlation = 100
    for t in (0, 1_000_000):
        row("NVTX_EVENTS", t + 100_000, t + 300_000, 59, "step", THREAD, None, 0)
        row("NVTX_EVENTS", t + 110_000, t + 150_000, 59, None, THREAD, 3, 0)
        for name, call, start, end in ((1, 120_000, 400_000, 500_000), (2, 200_000, 520_000, 600_000)):
            correlation += 1
            row("CUPTI_ACTIVITY_KIND_RUNTIME", t + call, t + call + 5, THREAD, correlation, 1)
            row("CUPTI_ACTIVITY_KIND_KERNEL", t + start, t + end, 0, 1, 7, correlation, PROCESS, name, name, 32, 4, 1, 1, 128, 1, 1, 0, 16, None)
        correlation += 1
        row("CUPTI_ACTIVITY_KIND_RUNTIME", t + 220_000, t + 220_005, THREAD, correlation, 1)
        row("CUPTI_ACTIVITY_KIND_MEMCPY", t + 610_000, t + 620_000, 0, 7, correlation, PROCESS, 64, 1)
    db.commit()
    db.close()


if __name__ == "__main__":
    main()

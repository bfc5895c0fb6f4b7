#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

// An export with the tables and columns that nsys 2022 to 2025 write, as far as they are read.
class Export {
 public:
  Export() {
    std::string name = "/tmp/stepscope-nsys-XXXXXX";
    if (!mkdtemp(name.data())) std::abort();
    folder_ = name;
    sqlite3_open(path().c_str(), &db_);
    run("PRAGMA synchronous = OFF");  // nobody reads it after a power failure, and each row would wait for the disk
    run("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)");
    run("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, streamId "
        "INT, correlationId INT, globalPid INT,"
        " demangledName INT, shortName INT, registersPerThread INT, gridX INT, gridY INT, gridZ INT, blockX "
        "INT, blockY INT, blockZ INT,"
        " staticSharedMemory INT, dynamicSharedMemory INT, graphNodeId INT)");
    run("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, "
        "nameId INT)");
    run("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT, "
        "correlationId INT, globalPid INT, bytes INT, copyKind INT)");
    run("CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT, "
        "domainId INT)");
    run("CREATE TABLE TARGET_INFO_GPU (name TEXT, smCount INT, chipName TEXT, computeMajor INT, computeMinor "
        "INT)");
    run("INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H200', 132, 'GH100', 9, 0)");
    run("INSERT INTO StringIds VALUES (1, 'void f<(int)4>(float *)'), (2, 'g'), (3, 'forward/0/qkv')");
  }
  ~Export() {
    close();
    std::filesystem::remove_all(folder_);
  }
  void run(const std::string& sql) {
    char* error = nullptr;
    if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, &error) != SQLITE_OK) ADD_FAILURE() << error << ": " << sql;
  }
  void reopen() { sqlite3_open(path().c_str(), &db_); }
  void close() {
    if (db_) sqlite3_close(db_);
    db_ = nullptr;
  }
  std::filesystem::path path() const { return folder_ / "x.sqlite"; }

  struct Launch {
    int64_t call = 0, start = 0, end = 0;
    int64_t stream = 7, device = 0, graph_node = 0;  // graph_node 0: from no graph
  };
  // The call of an operation that is added next, on the thread of `process`; returns its correlation id.
  int64_t call(int64_t at) {
    const int64_t id = ++correlation_;
    run(fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({}, {}, {}, {}, 1)", at, at + 5, global_tid(), id));
    return id;
  }
  void kernel(int name, const Launch& l, int64_t of_call) {
    run(fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, {}, 1, {}, {}, {}, {}, {}, 32, 4, 1, 1, 128, 1, 1, 0, 16, {})",
                    l.start, l.end, l.device, l.stream, of_call, global_pid(), name, name,
                    l.graph_node ? fmt::to_string(l.graph_node) : "NULL"));
  }
  void kernel(int name, const Launch& l) { kernel(name, l, call(l.call)); }
  // Kernel `name` launched at `call` on the thread, run from start to end.
  void kernel(int name, int64_t call, int64_t start, int64_t end) { kernel(name, {call, start, end}); }
  void copy(int64_t kind, int64_t bytes, const Launch& l) {
    run(fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({}, {}, {}, {}, {}, {}, {}, {})", l.start, l.end, l.device, l.stream,
                    call(l.call), global_pid(), bytes, kind));
  }
  // A graph of which nsys traced no node. The table is there where it has a row.
  void whole_graph(const Launch& l) {
    run("CREATE TABLE IF NOT EXISTS CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, deviceId INT, contextId INT, streamId INT, "
        "correlationId INT, globalPid INT, graphId INT, graphExecId INT)");
    run(fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES ({}, {}, {}, 1, {}, {}, {}, 1, 2)", l.start, l.end, l.device,
                    l.stream, call(l.call), global_pid()));
  }
  void range(const std::string& text, int64_t start, int64_t end, int text_id = 0) {
    run("INSERT INTO NVTX_EVENTS VALUES (" + std::to_string(start) + "," + std::to_string(end) + ",59," +
        (text_id ? "NULL" : "'" + text + "'") + "," + std::to_string(global_tid()) + "," + (text_id ? std::to_string(text_id) : "NULL") +
        ",0)");
  }
  int64_t process = 77;  // of what is added next
  int64_t global_pid() const { return process << 24; }
  int64_t global_tid() const { return global_pid() + 78; }

 private:
  std::filesystem::path folder_;
  sqlite3* db_ = nullptr;
  int64_t correlation_ = 100;
};

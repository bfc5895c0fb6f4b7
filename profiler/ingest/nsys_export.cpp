#include "profiler/ingest/nsys_export.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "base/errors.h"
#include "profiler/records/step_name.h"

namespace profiler {
namespace {

constexpr int64_t kPushPopRange = 59;  // ENUM_NSYS_EVENT_TYPE: NvtxPushPopRange
constexpr int64_t kPidBits = 0x1000000;
// Of the texts and rows that are read, the longest are names of kernels. SQLite's own limit is a gigabyte.
constexpr int kLongestValue_bytes = 16 << 20;
constexpr const char* kWholeGraphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";

class Database {
 public:
  explicit Database(const std::filesystem::path& path) : source_(path.string()) {
    sqlite3* raw = nullptr;
    const int rc = sqlite3_open_v2(source_.c_str(), &raw, SQLITE_OPEN_READONLY, nullptr);
    db_.reset(raw);
    if (rc != SQLITE_OK) fail();
    refuse_cut(path);
    // The file comes from elsewhere: what its schema defines is not trusted, lengths in its pages are checked.
    sqlite3_exec(raw, "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA query_only = ON", nullptr, nullptr, nullptr);
    sqlite3_limit(raw, SQLITE_LIMIT_LENGTH, kLongestValue_bytes);
  }

  // SQLite notices missing pages only where it reads them. The header says how long the file was.
  void refuse_cut(const std::filesystem::path& path) const {
    std::array<unsigned char, 100> h{};
    std::ifstream in(path, std::ios::binary);
    in.read(reinterpret_cast<char*>(h.data()), h.size());
    if (in.gcount() < static_cast<std::streamsize>(h.size()))
      throw stepscope::InputError(
          fmt::format("{}: the file has {} bytes, an SQLite file begins with a header of {}: the export is cut; copy it again", source_,
                      std::filesystem::file_size(path), h.size()));
    const auto number = [&](size_t at) { return uint64_t{h[at]} << 24 | uint64_t{h[at + 1]} << 16 | uint64_t{h[at + 2]} << 8 | h[at + 3]; };
    const uint64_t page = (uint64_t{h[16]} << 8 | h[17]) == 1 ? 65536 : uint64_t{h[16]} << 8 | h[17];
    const bool count_is_valid = number(24) == number(92);  // an old SQLite leaves it behind
    const uint64_t expected = page * number(28), size = std::filesystem::file_size(path);
    if (count_is_valid && size < expected)
      throw stepscope::InputError(
          fmt::format("{}: the file has {} bytes, expected {}: the export is cut; copy it again", source_, size, expected));
  }

  // Structure of the pages of a table, which reading its rows in order does not look at.
  void check(const std::string& table) const {
    std::string found;
    query(fmt::format("PRAGMA quick_check('{}')", table), [&](const auto& row) {
      if (found.empty() && row.text(0) != "ok") found = row.text(0);
    });
    if (!found.empty()) throw stepscope::InputError(fmt::format("{}: table {} is damaged: {}", source_, table, found));
  }

  [[noreturn]] void fail() const {
    throw stepscope::InputError(
        fmt::format("{}: not a readable SQLite export of nsys: {}", source_, db_ ? sqlite3_errmsg(db_.get()) : "out of memory"));
  }

  // Refuses a view: it has as many rows as it says, without end from a file of 4 KiB. And a generated column: its values are as long as it says,
  // and a file of a few KiB has a thousand of them. nsys writes neither.
  std::set<std::string> columns(const std::string& table) const {
    std::set<std::string> names;
    query(fmt::format("SELECT 1 FROM sqlite_master WHERE type = 'view' AND name = '{}' COLLATE NOCASE", table), [&](const auto&) {
      throw stepscope::InputError(fmt::format("{}: {} is a view, expected a table as nsys writes them", source_, table));
    });
    query(fmt::format("SELECT name, hidden FROM pragma_table_xinfo('{}')", table), [&](const auto& row) {
      if (row.integer(1) > 1)
        throw stepscope::InputError(
            fmt::format("{}: column '{}' of {} is generated, expected values as nsys writes them", source_, row.text(0), table));
      names.insert(row.text(0));
    });
    return names;
  }

  struct Wrong {
    std::string what;
  };
  class Row {
   public:
    explicit Row(sqlite3_stmt* s) : s_(s) {}
    // A damaged cell of another type would read as 0.
    int64_t integer(int i) const {
      const int type = sqlite3_column_type(s_, i);
      if (type == SQLITE_NULL) return 0;
      if (type != SQLITE_INTEGER) wrong(i, "a whole number");
      return sqlite3_column_int64(s_, i);
    }
    // Of sizes and ids.
    int64_t count(int i) const {
      if (integer(i) < 0) wrong(i, "a whole number of 0 or more");
      return integer(i);
    }
    // Times of a session may begin at 0, which our records take for "lost".
    int64_t time_ns(int i) const {
      if (null(i) || integer(i) < 0) wrong(i, "a time of 0 ns or more");
      if (integer(i) > INT64_MAX / 4) wrong(i, "a time below 2^61 ns");
      return integer(i) + 1;
    }
    // Of an operation: its second column is the end.
    int64_t end_ns(int start, int end) const {
      if (time_ns(end) < time_ns(start)) wrong(end, fmt::format("a time not before its start, {}", integer(start)));
      return time_ns(end);
    }
    [[noreturn]] void wrong(int i, const std::string& expected) const {
      throw Wrong{fmt::format("'{}' is '{}', expected {}", sqlite3_column_name(s_, i), null(i) ? "NULL" : text(i), expected)};
    }
    bool null(int i) const { return sqlite3_column_type(s_, i) == SQLITE_NULL; }
    std::string text(int i) const {
      const auto* t = sqlite3_column_text(s_, i);
      return t ? std::string(reinterpret_cast<const char*>(t), static_cast<size_t>(sqlite3_column_bytes(s_, i))) : "";
    }

   private:
    sqlite3_stmt* s_;
  };

  template <class F>
  void query(const std::string& sql, F each) const {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) fail();
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
    int64_t number = 0;
    for (int rc; (rc = sqlite3_step(raw)) != SQLITE_DONE; ++number) {
      if (rc != SQLITE_ROW) fail();
      try {
        each(Row(raw));
      } catch (const Wrong& w) {
        const size_t from = sql.find("FROM ");
        const std::string table = sql.substr(from + 5, sql.find(' ', from + 5) - from - 5);
        throw stepscope::InputError(
            fmt::format("{}: table {}, row {} in the order of reading: {}; the export is damaged", source_, table, number + 1, w.what));
      }
    }
  }

  const std::string& source() const { return source_; }

 private:
  struct Close {
    void operator()(sqlite3* d) const { sqlite3_close(d); }
  };
  std::string source_;
  std::unique_ptr<sqlite3, Close> db_;
};

struct Range {
  int64_t start = 0, end = 0;
  std::string name;
};

class NsysReader {
 public:
  NsysReader(const std::filesystem::path& path, std::string step_range) : db_(path), step_range_(std::move(step_range)) {
    r_.tool = "nsys";
    r_.form = "nsys SQLite";
    r_.source = db_.source();
  }

  ForeignReport read() {
    for (const char* table : {"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY",
                              "CUPTI_ACTIVITY_KIND_MEMSET", kWholeGraphs, "NVTX_EVENTS"})
      if (!db_.columns(table).empty()) db_.check(table);
    read_launch_calls();
    read_whole_graphs();
    const auto kernel_columns = db_.columns("CUPTI_ACTIVITY_KIND_KERNEL");
    if (kernel_columns.empty()) refuse_whole_graphs_alone();
    for (const char* needed : {"start", "end", "correlationId", "streamId", "deviceId", "gridX", "blockX"})
      if (!kernel_columns.contains(needed))
        throw stepscope::InputError(
            fmt::format("{}: {}; export a capture made with --trace cuda,nvtx by `nsys export --type sqlite`", r_.source,
                        kernel_columns.empty() ? "the export holds no CUDA kernels (no table CUPTI_ACTIVITY_KIND_KERNEL)"
                                               : fmt::format("its kernel table has no column '{}'", needed)));
    db_.query("SELECT id, value FROM StringIds", [&](const auto& row) { strings_[row.integer(0)] = row.text(1); });
    read_kernels(kernel_columns);
    read_copies("CUPTI_ACTIVITY_KIND_MEMCPY", ForeignKind::copy);
    read_copies("CUPTI_ACTIVITY_KIND_MEMSET", ForeignKind::memset);
    if (std::none_of(operations_.begin(), operations_.end(), [](const Operation& o) { return o.result.kind == ForeignKind::kernel; })) {
      refuse_whole_graphs_alone();
      throw stepscope::InputError(fmt::format("{}: the export holds no kernel", r_.source));
    }
    place_in_ranges();
    take_out_whole_graphs();
    read_devices();
    // One call launches all nodes of a graph: they stand in the order in which they were added to it, whichever branch ran first.
    std::stable_sort(operations_.begin(), operations_.end(), [](const Operation& a, const Operation& b) {
      const auto of = [](const Operation& o) { return std::tuple(o.launched_ns, o.result.graph_node, o.result.start_ns); };
      return of(a) < of(b);
    });
    for (Operation& o : operations_) r_.results.push_back(std::move(o.result));
    make_steps();
    return std::move(r_);
  }

 private:
  struct Operation {
    ForeignResult result;
    int64_t thread = 0;  // globalTid of the launch; 0: no call with this correlation id
    int64_t launched_ns = 0, correlation = 0;
  };
  // What no two operations share.
  using Identity = std::array<int64_t, 8>;
  static Identity identity(const Operation& o) {
    const ForeignResult& r = o.result;
    return {r.process, r.device, r.context, r.stream, o.correlation, r.graph_node, r.start_ns, r.end_ns};
  }

  static int64_t pid_of(int64_t global) { return global / kPidBits % kPidBits; }

  void read_launch_calls() {
    const auto columns = db_.columns("CUPTI_ACTIVITY_KIND_RUNTIME");
    if (!columns.contains("correlationId") || !columns.contains("globalTid")) return;
    db_.query("SELECT correlationId, globalTid, start FROM CUPTI_ACTIVITY_KIND_RUNTIME", [&](const auto& row) {
      calls_[{pid_of(row.integer(1)), row.integer(0)}] = {row.integer(1), row.time_ns(2)};
    });
  }

  void add(ForeignResult result, int64_t global_pid, int64_t correlation, int64_t start, int64_t end) {
    Operation o;
    o.correlation = correlation;
    result.start_ns = start;
    result.end_ns = end;
    result.process = pid_of(global_pid);
    o.launched_ns = result.start_ns;
    if (const auto call = calls_.find({result.process, correlation}); call != calls_.end()) {
      o.thread = call->second.first;
      o.launched_ns = call->second.second;
      result.thread = o.thread % kPidBits;
    } else {
      ++unmatched_[result.process];
    }
    o.result = std::move(result);
    // A table is read in the order of starts, so a row that stands twice stands among those of the same start.
    if (!operations_.empty() && operations_.back().result.start_ns != start) of_one_start_.clear();
    if (!of_one_start_.insert(identity(o)).second)
      throw stepscope::InputError(fmt::format(
          "{}: '{}' with correlation id {} stands twice on stream {}: its time would count twice, expected every operation once", r_.source,
          o.result.name, correlation, o.result.stream));
    operations_.push_back(std::move(o));
  }

  void read_kernels(const std::set<std::string>& has) {
    const auto column = [&](const char* name, const char* otherwise) { return has.contains(name) ? std::string(name) : otherwise; };
    db_.query(fmt::format("SELECT start, end, {}, correlationId, {}, {}, contextId, streamId, deviceId, gridX, "
                          "gridY, gridZ, blockX, blockY, "
                          "blockZ, {}, {}, {}, {} FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start",
                          column("globalPid", "0"), column("demangledName", "NULL"), column("shortName", "NULL"),
                          column("registersPerThread", "NULL"), column("staticSharedMemory", "NULL"), column("dynamicSharedMemory", "NULL"),
                          column("graphNodeId", "NULL")),
              [&](const auto& row) {
                ForeignResult k;
                const auto name = [&](int i) { return row.null(i) ? std::string() : string(row.integer(i)); };
                k.name = simplified_kernel_name(name(4));
                if (k.name.empty()) k.name = name(5);
                if (k.name.empty()) k.name = "(kernel without a name)";
                k.context = row.integer(6);
                k.stream = row.count(7);
                k.device = row.count(8);
                k.grid = {row.count(9), row.count(10), row.count(11)};
                k.block = {row.count(12), row.count(13), row.count(14)};
                if (!row.null(15)) k.registers = row.count(15);
                if (!row.null(16)) k.shared_static_bytes = row.count(16);
                if (!row.null(17)) k.shared_dynamic_bytes = row.count(17);
                if (!row.null(18)) k.graph_node = row.integer(18);
                add(std::move(k), row.integer(2), row.integer(3), row.time_ns(0), row.end_ns(0, 1));
              });
  }

  void read_copies(const char* table, ForeignKind kind) {
    const auto has = db_.columns(table);
    if (!has.contains("bytes") || !has.contains("correlationId")) return;
    static const std::map<int64_t, const char*> kKinds = {{1, "copy HtoD"}, {2, "copy DtoH"}, {8, "copy DtoD"}, {10, "copy PtoP"}};
    const auto column = [&](const char* name) { return has.contains(name) ? name : "NULL"; };
    // Nodes of a graph have one call, so only the node tells two of one stream and one time apart.
    db_.query(fmt::format("SELECT start, end, {}, correlationId, streamId, deviceId, bytes, {}, {}, {} FROM {} ORDER BY start",
                          column("globalPid"), column("copyKind"), column("contextId"), column("graphNodeId"), table),
              [&](const auto& row) {
                ForeignResult c;
                c.kind = kind;
                const auto word = kKinds.find(row.integer(7));
                c.name = kind == ForeignKind::memset ? "memset" : word != kKinds.end() ? word->second : "copy";
                c.stream = row.count(4);
                c.device = row.count(5);
                c.bytes = row.count(6);
                c.context = row.integer(8);
                c.graph_node = row.integer(9);
                add(std::move(c), row.integer(2), row.integer(3), row.time_ns(0), row.end_ns(0, 1));
              });
  }

  // Graphs of which nsys traced no node: each launch is one row, and its kernels are in no table.
  void read_whole_graphs() {
    const auto has = db_.columns(kWholeGraphs);
    if (!has.contains("start") || !has.contains("end") || !has.contains("correlationId")) return;
    const auto column = [&](const char* name) { return has.contains(name) ? name : "0"; };
    db_.query(fmt::format("SELECT start, end, {}, correlationId, {}, {}, {} FROM {} ORDER BY start", column("globalPid"),
                          column("contextId"), column("streamId"), column("deviceId"), kWholeGraphs),
              [&](const auto& row) {
                ForeignResult g;
                g.kind = ForeignKind::graph;
                g.name = "CUDA graph";
                g.context = row.integer(4);
                g.stream = row.count(5);
                g.device = row.count(6);
                add(std::move(g), row.integer(2), row.integer(3), row.time_ns(0), row.end_ns(0, 1));
              });
  }

  void refuse_whole_graphs_alone() const {
    const auto graphs =
        std::count_if(operations_.begin(), operations_.end(), [](const Operation& o) { return o.result.kind == ForeignKind::graph; });
    if (graphs > 0)
      throw stepscope::InputError(
          fmt::format("{}: the export holds no kernel, but {} launch{} of CUDA graphs whose kernels nsys did not trace; record again with "
                      "`nsys profile --trace cuda,nvtx --cuda-graph-trace=node`",
                      r_.source, graphs, graphs == 1 ? "" : "es"));
  }

  // Says how many are missing from what is shown: from the steps where there are any, else from all.
  void take_out_whole_graphs() {
    const bool steps = std::any_of(operations_.begin(), operations_.end(), [](const Operation& o) { return o.result.step >= 0; });
    std::map<int64_t, std::pair<int64_t, int64_t>> lacking;  // by process: launches and their time
    for (const Operation& o : operations_) {
      if (o.result.kind != ForeignKind::graph || (steps && o.result.step < 0)) continue;
      auto& [launches, time_ns] = lacking[o.result.process];
      ++launches;
      time_ns += o.result.end_ns - o.result.start_ns;
    }
    for (const auto& [process, of_process] : lacking)
      r_.processes[process].missing.push_back(
          {"graphs_traced_whole", of_process.first, fmt::format("{:.3f} ms on the GPU", static_cast<double>(of_process.second) * 1e-6)});
    std::erase_if(operations_, [](const Operation& o) { return o.result.kind == ForeignKind::graph; });
  }

  // Ranges of one thread nest: a sweep over starts and launches with a stack of what is open.
  void place_in_ranges() {
    const auto has = db_.columns("NVTX_EVENTS");
    if (!has.contains("globalTid") || !has.contains("eventType")) return;
    std::map<int64_t, std::vector<Range>> ranges;
    db_.query(fmt::format("SELECT start, end, globalTid, text, {} FROM NVTX_EVENTS WHERE eventType = {} AND "
                          "end IS NOT NULL",
                          has.contains("textId") ? "textId" : "NULL", kPushPopRange),
              [&](const auto& row) {
                ranges[row.integer(2)].push_back({row.time_ns(0), row.time_ns(1),
                                                  !row.null(3)  ? row.text(3)
                                                  : row.null(4) ? ""
                                                                : string(row.integer(4))});
              });
    r_.has_ranges = !ranges.empty();
    std::map<int64_t, std::vector<Operation*>> launches;
    for (Operation& o : operations_)
      if (o.thread) launches[o.thread].push_back(&o);
    for (auto& [thread, list] : ranges) {
      std::stable_sort(list.begin(), list.end(),
                       [](const Range& a, const Range& b) { return std::pair(a.start, -a.end) < std::pair(b.start, -b.end); });
      auto& of_thread = launches[thread];
      std::stable_sort(of_thread.begin(), of_thread.end(),
                       [](const Operation* a, const Operation* b) { return a->launched_ns < b->launched_ns; });
      std::vector<std::pair<const Range*, int64_t>> open;  // and the step that it is, or -1
      size_t next = 0;
      const auto close_before = [&](int64_t now) { std::erase_if(open, [&](const auto& r) { return r.first->end <= now; }); };
      for (Operation* o : of_thread) {
        for (; next < list.size() && list[next].start <= o->launched_ns; ++next) {
          close_before(list[next].start);
          // As the collector has it: a step opens in no other, and all have one name in paths.
          const bool in_step = std::any_of(open.begin(), open.end(), [](const auto& r) { return r.second >= 0; });
          const bool is_step = !in_step && is_step_name(list[next].name, step_range_);
          if (is_step) list[next].name = step_range_;
          if (is_step) step_times_.push_back({list[next].start, list[next].end});
          open.push_back({&list[next], is_step ? static_cast<int64_t>(step_times_.size()) - 1 : -1});
        }
        close_before(o->launched_ns);
        for (const auto& [range, step] : open) {
          o->result.path += (o->result.path.empty() ? "" : "/") + range->name;
          if (step >= 0) o->result.step = step;
        }
      }
    }
  }

  // One record per step that launched something; the device's begin and end come from its operations.
  void make_steps() {
    std::map<int64_t, StepRecord> steps;
    std::map<int64_t, std::set<int64_t>> of_process;
    for (const ForeignResult& o : r_.results) {
      if (o.step < 0) continue;
      of_process[o.process].insert(o.step);
      StepRecord& s = steps[o.step];
      s.step = o.step;
      s.phase = Phase::activity;
      if (static_cast<size_t>(o.step) < step_times_.size()) {
        s.host_begin_ns = step_times_[static_cast<size_t>(o.step)].first;
        s.host_end_ns = step_times_[static_cast<size_t>(o.step)].second;
      }
      s.gpu_begin_ns = s.gpu_begin_ns ? std::min(s.gpu_begin_ns, o.start_ns) : o.start_ns;
      s.gpu_end_ns = std::max(s.gpu_end_ns, o.end_ns);
      s.kernels += o.kind == ForeignKind::kernel;
      s.copies += o.kind == ForeignKind::copy;
      s.memsets += o.kind == ForeignKind::memset;
    }
    for (const auto& [process, own] : of_process) drop_cut_step(steps, own, r_.processes[process].missing);
    if (!steps.empty()) {
      std::map<int64_t, int64_t> outside;
      for (const ForeignResult& o : r_.results)
        if (o.step < 0) ++outside[o.process];
      std::erase_if(r_.results, [](const ForeignResult& o) { return o.step < 0; });
      for (const auto& [process, count] : outside)
        r_.processes[process].missing.push_back({"outside_steps", count, fmt::format("launched outside every range '{}'", step_range_)});
    }
    for (const auto& [number, s] : steps) r_.steps.push_back(s);
    for (const auto& [process, count] : unmatched_)
      r_.processes[process].missing.push_back({"unmatched_correlation", count, "no CUDA API call with their correlation id in the export"});
  }

  // A capture that ends inside a step leaves a last one that is shorter than its neighbour. `own`: the steps of one process, of which
  // `missing` is said.
  void drop_cut_step(std::map<int64_t, StepRecord>& steps, const std::set<int64_t>& own, std::vector<MissingRecord>& missing) {
    if (own.size() < 2) return;
    const auto last = std::prev(own.end());
    const int64_t cut = *last, kernels = steps.at(cut).kernels, before = steps.at(*std::prev(last)).kernels;
    if (kernels >= before) return;
    missing.push_back({"last_step_incomplete", 1, fmt::format("step {} has {} kernels, the step before it {}", cut, kernels, before)});
    steps.erase(cut);
    std::erase_if(r_.results, [&](const ForeignResult& o) { return o.step == cut; });
  }

  // "WHERE id = …" of the GPU that a process calls `device`; "" where the export has one GPU, or does not number them. CUDA numbers those
  // that a process may see, the target's table all; an export whose table of those names no process has one numbering.
  std::string which_gpu(const std::set<std::string>& has, int64_t process, int64_t device) const {
    if (!has.contains("id")) return "";
    int64_t id = device, gpus = 0;
    db_.query("SELECT COUNT(*) FROM TARGET_INFO_GPU", [&](const auto& row) { gpus = row.integer(0); });
    if (gpus < 2) return "";
    if (const auto cuda = db_.columns("TARGET_INFO_CUDA_DEVICE"); cuda.contains("gpuId") && cuda.contains("cudaId"))
      db_.query(fmt::format("SELECT gpuId FROM TARGET_INFO_CUDA_DEVICE WHERE cudaId = {}{}", device,
                            cuda.contains("pid") ? fmt::format(" ORDER BY pid = {}", process) : ""),
                [&](const auto& row) { id = row.integer(0); });
    return fmt::format("WHERE id = {} ", id);
  }

  std::map<std::string, std::string> read_device(int64_t process, int64_t device) const {
    std::map<std::string, std::string> found;
    const auto has = db_.columns("TARGET_INFO_GPU");
    const std::string which = which_gpu(has, process, device);
    const std::pair<const char*, const char*> words[] = {
        {"name", "name"}, {"chipName", "chip"}, {"smCount", "sm_count"}, {"totalMemory", "memory_bytes"}, {"l2CacheSize", "l2_bytes"},
        {"uuid", "uuid"}};
    for (const auto& [column, key] : words)
      if (has.contains(column))
        db_.query(fmt::format("SELECT {} FROM TARGET_INFO_GPU {}LIMIT 1", column, which), [&, k = key](const auto& row) {
          if (!row.null(0)) found[k] = row.text(0);
        });
    if (has.contains("computeMajor") && has.contains("computeMinor"))
      db_.query(fmt::format("SELECT computeMajor, computeMinor FROM TARGET_INFO_GPU {}LIMIT 1", which),
                [&](const auto& row) { found["compute_capability"] = fmt::format("{}.{}", row.integer(0), row.integer(1)); });
    return found;
  }

  void read_devices() {
    std::set<std::pair<int64_t, int64_t>> seen;  // process, device
    for (const Operation& o : operations_) {     // kernels first, as they were read
      if (!seen.emplace(o.result.process, o.result.device).second) continue;
      ForeignProcess& process = r_.processes[o.result.process];
      const auto device = read_device(o.result.process, o.result.device);
      if (const auto name = device.find("name"); name != device.end()) process.gpus[o.result.device] = name->second;
      if (o.result.kind == ForeignKind::kernel && process.device.empty()) process.device = device;
    }
    for (const char* table : {"META_DATA_EXPORT", "EXPORT_META_DATA"})
      if (const auto m = db_.columns(table); m.contains("name") && m.contains("value"))
        db_.query(fmt::format("SELECT name, value FROM {}", table), [&](const auto& row) {
          if (row.text(0).find("VERSION") != std::string::npos) r_.versions["nsys: " + row.text(0)] = row.text(1);
        });
  }

  std::string string(int64_t id) const {
    const auto at = strings_.find(id);
    return at == strings_.end() ? std::string() : at->second;
  }

  Database db_;
  std::string step_range_;
  ForeignReport r_;
  std::map<int64_t, std::string> strings_;
  std::map<std::pair<int64_t, int64_t>, std::pair<int64_t, int64_t>> calls_;  // (pid, correlation) -> (globalTid, start)
  std::vector<Operation> operations_;
  std::set<Identity> of_one_start_;  // that of the last operation
  std::vector<std::pair<int64_t, int64_t>> step_times_;
  std::map<int64_t, int64_t> unmatched_;  // operations by process
};

}  // namespace

bool reads_nsys_exports() { return true; }

bool looks_like_sqlite(std::span<const std::byte> bytes) {
  constexpr char kMagic[] = "SQLite format 3";  // with its terminating zero
  return bytes.size() >= sizeof kMagic && std::memcmp(bytes.data(), kMagic, sizeof kMagic) == 0;
}

ForeignReport read_nsys_export(const std::filesystem::path& path, const std::string& step_range) {
  return NsysReader(path, step_range).read();
}

}  // namespace profiler

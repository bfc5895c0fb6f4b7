#include "profiler/ingest/ncu_report.h"

#include <fmt/format.h>
#include <google/protobuf/arena.h>

#include <cmath>
#include <cstring>

#include "base/errors.h"
#include "ncu_report.pb.h"
#include "profiler/ingest/read_metrics.h"

namespace profiler {
namespace {

constexpr char kMagic[4] = {'N', 'V', 'R', '\0'};
constexpr uint32_t kKnownVersion = 7;

struct Damage {
  size_t at;
  std::string what;
};

// The file as a sequence of sized messages; never past the end of what it was given.
class Cursor {
 public:
  Cursor(const std::byte* data, size_t begin, size_t end) : data_(data), at_(begin), end_(end) {}
  bool at_end() const { return at_ == end_; }
  size_t at() const { return at_; }

  std::span<const std::byte> take(uint64_t count, const char* what) {
    if (count > end_ - at_) throw Damage{at_, fmt::format("{} has {} bytes, {} are left", what, count, end_ - at_)};
    const std::span<const std::byte> part(data_ + at_, count);
    at_ += count;
    return part;
  }
  uint32_t u32(const char* what) {
    uint32_t v;
    std::memcpy(&v, take(sizeof v, what).data(), sizeof v);
    return v;
  }
  // u32 size | message
  template <class Message>
  void message(Message& m, const char* what) {
    const size_t begin = at_;
    const auto bytes = take(u32(what), what);
    if (bytes.size() > INT32_MAX || !m.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      throw Damage{begin, fmt::format("{} is not a readable message", what)};
  }

 private:
  const std::byte* data_;
  size_t at_, end_;
};

std::optional<double> number_of(const ncu::Value& v) {
  double d;
  if (v.has_number())
    d = v.number();
  else if (v.has_single())
    d = v.single();
  else if (v.has_u64())
    d = static_cast<double>(v.u64());
  else if (v.has_u32())
    d = v.u32();
  else
    return std::nullopt;
  return std::isfinite(d) ? std::optional(d) : std::nullopt;  // ncu stores NaN for a ratio of nothing by nothing
}

// The stack of the launching thread. Its domains keep one stack each and do not say how they interleave: joined in file order.
std::string range_path(const ncu::NvtxState& state, uint32_t thread) {
  std::string path;
  const auto push = [&](const std::string& name) { path += (path.empty() ? "" : "/") + name; };
  for (const ncu::NvtxThread& t : state.threads()) {
    if (t.id() != thread && state.threads_size() > 1) continue;
    for (const ncu::NvtxPushPopDomain& d : t.domains())
      for (const ncu::NvtxPushPopRange& r : d.stack()) push(r.name());
  }
  if (path.empty())
    for (const ncu::NvtxStartEndDomain& d : state.start_end())
      for (const ncu::NvtxStartEndRange& r : d.ranges()) push(r.name());
  return path;
}

std::array<int64_t, 3> xyz(const ncu::Size& s) {
  return {static_cast<int64_t>(s.x()), static_cast<int64_t>(s.y()), static_cast<int64_t>(s.z())};
}

class NcuReportReader {
 public:
  NcuReportReader(std::span<const std::byte> bytes, std::string source) : bytes_(bytes) {
    r_.tool = "ncu";
    r_.form = "ncu-rep";
    r_.source = std::move(source);
  }

  ForeignReport read() {
    try {
      read_file();
    } catch (const Damage& d) {
      if (r_.results.empty()) throw stepscope::InputError(fmt::format("{}: at byte {}: {}", r_.source, d.at, d.what));
      r_.missing.push_back({"report_damaged", 1,
                            fmt::format("at byte {} of {}: {}; {}", d.at, bytes_.size(), d.what, shown_before_damage(r_.results.size()))});
    }
    drop_nameless();
    check_values();
    place_on_devices();
    if (r_.results.empty())
      throw stepscope::InputError(fmt::format("{}: the report holds no result; did ncu print \"No kernels were profiled\"?", r_.source));
    return std::move(r_);
  }

 private:
  void read_file() {
    if (!looks_like_ncu_report(bytes_))
      throw Damage{0, fmt::format("an Nsight Compute report begins with \"NVR\\0\", this file of {} bytes does not", bytes_.size())};
    Cursor file(bytes_.data(), sizeof kMagic, bytes_.size());
    ncu::FileHeader header;
    file.message(header, "the file header");
    if (header.version() != kKnownVersion)
      r_.missing.push_back({"report_version_unknown", 1, fmt::format("file version {}, known is {}", header.version(), kKnownVersion)});
    while (!file.at_end()) read_block(file);
  }

  void read_block(Cursor& file) {
    google::protobuf::Arena arena;
    auto& block = *google::protobuf::Arena::CreateMessage<ncu::BlockHeader>(&arena);
    file.message(block, "a block header");
    for (const std::string& s : block.strings().text()) r_.metrics.push_back(s);
    if (block.has_session()) read_session(block.session());
    if (block.has_process()) {
      process_ = block.process().id();
      r_.processes[process_].program = block.process().path();
    }
    const size_t begin = file.at();
    const auto payload = file.take(block.payload_bytes(), "a block's payload");
    Cursor in(bytes_.data(), begin, begin + payload.size());
    for (uint32_t i = 0; i < block.sources(); ++i) in.take(in.u32("a source"), "a source");
    for (uint32_t i = 0; i < block.kernel_results(); ++i) read_kernel(in);
    for (uint32_t i = 0; i < block.range_results(); ++i) read_group(in, ForeignKind::range, "range");
    for (uint32_t i = 0; i < block.command_list_results(); ++i) read_group(in, ForeignKind::command_list, "command list");
    for (uint32_t i = 0; i < block.graph_results(); ++i) read_group(in, ForeignKind::graph, "graph");
    if (!in.at_end()) throw Damage{in.at(), fmt::format("{} bytes behind the last message of a block", begin + payload.size() - in.at())};
  }

  void read_session(const ncu::Session& s) {
    for (const ncu::Version& v : s.versions()) r_.versions["ncu: " + v.provider()] = v.version();
  }

  void read_kernel(Cursor& in) {
    google::protobuf::Arena arena;
    auto& k = *google::protobuf::Arena::CreateMessage<ncu::KernelResult>(&arena);
    in.message(k, "a kernel result");
    ForeignResult result;
    result.name = !k.renamed().empty()     ? k.renamed()
                  : !k.demangled().empty() ? simplified_kernel_name(k.demangled())
                  : !k.function().empty()  ? k.function()
                                           : k.mangled();
    result.thread = k.thread();
    result.context = k.context();
    result.stream = k.stream();
    result.grid = xyz(k.grid());
    result.block = xyz(k.block());
    if (k.driver() > 0) r_.versions["driver"] = fmt::format("{:.2f}", k.driver());
    if (k.has_nvtx()) {
      r_.has_ranges = true;
      result.path = range_path(k.nvtx(), k.thread());
    }
    read_metrics(result, k.metrics());
  }

  void read_group(Cursor& in, ForeignKind kind, const char* word) {
    google::protobuf::Arena arena;
    auto& g = *google::protobuf::Arena::CreateMessage<ncu::GroupResult>(&arena);
    in.message(g, "a result");
    ForeignResult result;
    result.kind = kind;
    result.thread = g.thread();
    result.context = g.context();
    result.stream = g.stream();
    if (g.has_nvtx()) {
      r_.has_ranges = true;
      result.path = range_path(g.nvtx(), g.thread());
    }
    result.name = fmt::format("{} {}", word, result.path.empty() ? fmt::to_string(r_.results.size()) : result.path);
    read_metrics(result, g.metrics());
  }

  template <class Metrics>
  void read_metrics(ForeignResult& result, const Metrics& metrics) {
    result.process = process_;
    result.values.reserve(static_cast<size_t>(metrics.size()));
    for (const ncu::Metric& m : metrics) {
      if (const auto number = number_of(m.value()))
        result.values.emplace_back(m.name_id(), *number);
      else if (m.has_value() && m.value().has_text())
        result.texts.emplace_back(m.name_id(), m.value().text());
      else
        result.no_value.push_back(m.name_id());
    }
    r_.results.push_back(std::move(result));
  }

  // A result may come before the block that holds its metrics' names (ncu 2023.3 writes such reports), so ids are checked at the end.
  void drop_nameless() {
    const auto names = r_.metrics.size();
    const auto nameless = [&](const auto& v) { return v.first >= names; };
    int64_t dropped = 0;
    for (ForeignResult& r : r_.results) {
      dropped += static_cast<int64_t>(std::erase_if(r.values, nameless) + std::erase_if(r.texts, nameless) +
                                      std::erase_if(r.no_value, [&](uint32_t id) { return id >= names; }));
    }
    if (dropped)
      r_.missing.push_back({"report_damaged", dropped, fmt::format("{} values have a name beyond the {} of the report", dropped, names)});
  }

  // The file has no check sum: a flipped byte shows only where a number cannot be one of its metric.
  void check_values() {
    std::vector<char> read(r_.metrics.size());
    for (size_t i = 0; i < read.size(); ++i) read[i] = is_read(r_.metrics[i]);
    for (size_t i = 0; i < r_.results.size(); ++i)
      for (const auto& [index, value] : r_.results[i].values) {
        if (!read[index]) continue;
        const std::string expected = implausible(r_.metrics[index], value);
        if (expected.empty()) continue;
        const std::string what =
            fmt::format("result {} ('{}'): {} is {}, expected {}", i, r_.results[i].name, r_.metrics[index], value, expected);
        if (i == 0) throw stepscope::InputError(fmt::format("{}: {}", r_.source, what));
        r_.missing.push_back({"report_damaged", 1, fmt::format("{}; {}", what, shown_before_damage(i))});
        r_.results.resize(i);
        return;
      }
  }

  // A result's message does not name its GPU; its metrics do.
  void place_on_devices() {
    const auto of_launch = metric_index(r_, "launch__device_id"), of_device = metric_index(r_, "device__attribute_device_index");
    for (ForeignResult& r : r_.results)
      for (const auto& metric : {of_launch, of_device})
        if (const auto device = value_of(r, metric); device && *device >= 0 && *device <= INT32_MAX) {
          r.device = static_cast<int64_t>(*device);
          break;
        }
  }

  std::span<const std::byte> bytes_;
  ForeignReport r_;
  int64_t process_ = 0;
};

}  // namespace

bool looks_like_ncu_report(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof kMagic && std::memcmp(bytes.data(), kMagic, sizeof kMagic) == 0;
}

ForeignReport read_ncu_report(std::span<const std::byte> bytes, const std::string& source) { return NcuReportReader(bytes, source).read(); }

}  // namespace profiler

#include "cli/link_sweep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/cache_folder.h"
#include "base/errors.h"
#include "base/made_folders.h"
#include "base/output_file.h"
#include "base/stderr_text.h"
#include "base/text.h"
#include "base/utc.h"
#include "cli/collective_sweep.h"
#include "cli/gpu.h"
#include "cli/profile_ranks.h"
#include "cli/say.h"
#include "cli/train_ranks.h"
#include "cli/values.h"
#include "gpt2/distributed/agreement.h"
#include "gpt2/distributed/launcher.h"
#include "profiler/report/cells.h"
#include "profiler/report/terminal.h"
#include "profiler/report/view.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "cli/cuda_sweep_device.h"
#include "gpt2/cuda/device_info.h"
#include "gpt2/distributed/nccl.h"
#include "gpt2/distributed/peer_communicator.h"
#endif

namespace cli {
namespace {

namespace dist = gpt2::distributed;
using stepscope::InputError;
using stepscope::MachineError;

std::unique_ptr<SweepDevice> sweep_device(bool host, int64_t bytes) {
#ifdef STEPSCOPE_WITH_CUDA
  if (!host) return make_cuda_sweep_device(bytes);
#endif
  if (!host) throw MachineError("this build has no CUDA; --communicator staged sweeps between processes of this host");
  return std::make_unique<HostSweepDevice>(bytes);
}

std::string uuid_here(bool host) {
#ifdef STEPSCOPE_WITH_CUDA
  if (!host) return gpt2::cuda::device_info().uuid;
#endif
  return host ? "CPU" : "";
}

std::vector<std::string> uuids_of_all(dist::ControlChannel& channel, const std::string& own) {
  std::vector<std::string> uuids;
  for (const dist::Bytes& b : channel.all_gather(dist::Bytes(own.begin(), own.end()))) uuids.emplace_back(b.begin(), b.end());
  std::sort(uuids.begin(), uuids.end());
  return uuids;
}

void print(const profiler::LinkCeilings& links) {
  profiler::View view;
  view.columns = {{"collective", true, false, 0, ""},
                  {"by", true, false, 0, ""},
                  {"type", true, false, 0, ""},
                  {"ranks"},
                  {"us small"},
                  {"GB/s small"},
                  {"up to MB"},
                  {"us"},
                  {"GB/s"},
                  {"worst %"}};
  const auto number = [](double v, int digits) { return profiler::ViewCell{fmt::format("{:.{}f}", v, digits), v, {}}; };
  for (const profiler::LinkFit& f : links.fits) {
    profiler::ViewRow row{{{f.kind}, {f.communicator}, {f.type}, {std::to_string(f.ranks)}}};
    if (f.knee_bytes > 0) {
      row.cells.push_back(number(f.small.latency_ns / 1e3, 1));
      row.cells.push_back(number(f.small.bus_bytes_per_s / 1e9, 0));
      row.cells.push_back(number(static_cast<double>(f.knee_bytes) / 1e6, 2));
    } else {
      row.cells.resize(row.cells.size() + 3);
    }
    row.cells.push_back(number(f.large.latency_ns / 1e3, 1));
    row.cells.push_back(number(f.large.bus_bytes_per_s / 1e9, 0));
    row.cells.push_back(number(f.worst_error_pct, 1));
    view.rows.push_back(std::move(row));
  }
  fmt::print("{}, {}: time = latency + bytes over the busiest link / bandwidth\n", links.device, links.communicator);
  fmt::print("{}", profiler::terminal_text(view, profiler::table_width(STDOUT_FILENO), false));
  std::fflush(stdout);
}

void print_beside(const profiler::LinkCeilings& links) {
  if (links.beside.empty()) return;
  profiler::View view;
  view.columns = {{"beside work", true, false, 0, ""},
                  {"by", true, false, 0, ""},
                  {"type", true, false, 0, ""},
                  {"MB"},
                  {"work", true, false, 0, ""},
                  {"rows"},
                  {"us alone"},
                  {"us"},
                  {"work + us"},
                  {"%"}};
  for (const profiler::BesidePoint& b : links.beside) {
    profiler::ViewRow row{{{b.kind}, {b.communicator}, {b.type}, {fmt::format("{:.1f}", static_cast<double>(b.bytes) / 1e6)}, {b.work}}};
    row.cells.push_back({b.rows > 0 ? std::to_string(b.rows) : "", {}, {}});
    for (const double ns : {b.alone_ns, b.time_ns, b.slowed_ns}) row.cells.push_back({fmt::format("{:.1f}", ns / 1e3), {}, {}});
    row.cells.push_back({fmt::format("{:.0f}", b.slowed_ns / b.time_ns * 100), {}, {}});
    view.rows.push_back(std::move(row));
  }
  fmt::print("\nWork + us: by how much one collective makes work longer that runs at the same time; % of the collective's time there\n");
  fmt::print("{}", profiler::terminal_text(view, profiler::table_width(STDOUT_FILENO), false));
  std::fflush(stdout);
}

void print_awake(const profiler::LinkCeilings& links) {
  if (!links.awake) return;
  fmt::print("\nProducts at the power limit take {:.3f} ms while links sleep and {:.3f} ms while they do not: {:+.2f}%\n",
             links.awake->asleep_ns / 1e6, links.awake->awake_ns / 1e6, links.awake->slower() * 100);
}

// Which to measure, and why not the others of a host with GPUs.
std::vector<std::string> communicators_of(const LinkSweepFlags& f, [[maybe_unused]] RankSession& session) {
  if (f.communicator != "auto") return {f.communicator};
#ifdef STEPSCOPE_WITH_CUDA
  std::vector<std::string> words;
  const auto take = [&](const char* word, const std::function<void()>& must) {
    try {
      dist::agree(&session.channel(), must);
      words.emplace_back(word);
    } catch (const dist::RankFailure& e) {  // the same on all ranks
      if (session.is_first()) say(fmt::format("{} is not measured: {}", word, e.what()));
    }
  };
  take("peer", [&] {
    if (const auto why = dist::why_no_peer(session.world())) throw MachineError(*why);
  });
  take("nccl", [] {
    if (const auto why = dist::why_no_nccl()) throw MachineError(*why);
  });
  return words;
#else
  return {"nccl"};  // connect() says that this build has none
#endif
}

// The name of the file there follows from the GPUs, so the folder alone can be asked before they are measured.
void check_cache_folder() {
  const auto folder = stepscope::cache_folder();
  if (folder.empty()) throw InputError("there is no cache folder; expected --links FILE");
  stepscope::check_folder_usable(folder, "the cache folder (--links FILE keeps the sweep elsewhere)");
}

// Every rank measures; the first one keeps and shows what it saw.
void measure(const LinkSweepFlags& f, RankFlags& ranks, RankSession& session) {
  const bool host = f.communicator == "staged";
  SweepOptions options;
  options.most_bytes = f.most_mib << 20;
  options.meet_on_host = [&] { session.channel().all_gather({}); };
  profiler::LinkCeilings links;
  std::string unmeasured;
  for (const std::string& word : communicators_of(f, session)) {
    ranks.exchange.communicator = word;
    dist::Communicator* communicator = nullptr;
    try {
      communicator = &session.connect(ranks, host ? "reference" : "mixed");
    } catch (const dist::RankFailure& e) {
      if (f.communicator != "auto" || session.channel().failure()) throw;
      if (session.is_first()) say(fmt::format("{} is not measured: {}", word, e.what()));
      unmeasured = e.what();
      continue;
    }
    const auto device = sweep_device(host, sweep_bytes(options, session.world().size));
    if (links.uuids.empty()) links.uuids = uuids_of_all(session.channel(), uuid_here(host));
    Sweep sweep = sweep_collectives(*communicator, *device, options);
    links.points.insert(links.points.end(), sweep.points.begin(), sweep.points.end());
    links.beside.insert(links.beside.end(), sweep.beside.begin(), sweep.beside.end());
    if (sweep.awake) links.awake = {session.world().size, sweep.awake->asleep_ns, sweep.awake->awake_ns};
    options.meet_on_host = nullptr;  // links are awake or not whatever carries the bytes
    links.communicator += (links.communicator.empty() ? "" : ", ") + communicator->name();
    if (sweep.outlasted > 0 && session.is_first())
      say(fmt::format("{}: {} collectives outlasted the work beside them and are left out", word, sweep.outlasted));
  }
  if (links.points.empty()) throw MachineError(unmeasured.empty() ? "nothing connects these GPUs" : unmeasured);
  links.fits = profiler::fit_links(links.points);
  links.device = host ? "host memory" : gpu_status().name;
  links.measured_at = stepscope::now_utc();
  if (!session.is_first()) return;
  const std::string file = f.links.empty() ? links_file(links.uuids) : f.links;
  stepscope::write_output(file, profiler::links_to_json(links));
  print(links);
  print_beside(links);
  print_awake(links);
  stepscope::put_on_stderr(fmt::format("sweep: {}\n", stepscope::printable(file)));
}

int be_a_rank(const LinkSweepFlags& f) {
  RankFlags ranks;
  ranks.exchange.communicator = f.communicator;
  const auto session = RankSession::join(ranks);
  if (!session) throw InputError("--sweep-rank: expected a process that `doctor --gpus N` started");
  dist::Failure mine;
  bool of_others = false;
  try {
    measure(f, ranks, *session);
    session->channel().close();
    return 0;
  } catch (const dist::RankFailure& e) {
    mine = e.failure;
    of_others = true;
  } catch (...) {
    mine = dist::failure_of_current_exception(session->world().rank);
  }
  const dist::Failure agreed = session->channel().fail(mine);
  if (!of_others || session->is_first()) say(agreed.what);
  session->disconnect();
  return agreed.exit_code;
}

}  // namespace

void add_link_sweep_flags(Command& c, LinkSweepFlags& f) {
  c.add_option("--gpus", f.gpus, "measure how fast so many GPUs of this host exchange data, and keep it for `profile` and `scaling`")
      ->check(whole(2, 4096));
  c.add_option("--links", f.links, "write that sweep to this file instead of the cache");
  c.add_option("--communicator", f.communicator,
               "what is measured: copies between the GPUs (peer), NCCL, or messages through host memory (staged); auto: peer and nccl")
      ->one_of(communicators())
      ->capture_default_str();
  c.add_option("--most-mib", f.most_mib, "largest array of the sweep, in MiB")->check(whole(1, 1 << 14))->capture_default_str();
  c.add_flag("--sweep-rank", f.as_rank, "be one of the processes that --gpus starts")->group("");
}

bool asked_for(const LinkSweepFlags& f) { return f.gpus > 0 || f.as_rank; }

int sweep_links(const LinkSweepFlags& f, const CommandLine& line) {
  if (f.as_rank) return be_a_rank(f);
  refuse_to_start_ranks_again(f.gpus);
  if (!f.links.empty()) stepscope::check_output(f.links, "--links");
  if (f.communicator != "staged") {
    const GpuStatus gpu = gpu_status();
    if (!gpu.present) throw MachineError(fmt::format("--gpus {}: {}", f.gpus, gpu.why_not));
    if (gpu.count < f.gpus) throw MachineError(fmt::format("--gpus {}: {} visible here", f.gpus, gpu.count));
  }
  if (f.links.empty()) check_cache_folder();
  std::vector<std::string> argv{
      line.program(), "doctor", "--sweep-rank", "--communicator", f.communicator, "--most-mib", std::to_string(f.most_mib)};
  if (!f.links.empty()) argv.insert(argv.end(), {"--links", f.links});
  return dist::launch(argv, static_cast<int>(f.gpus));
}

}  // namespace cli

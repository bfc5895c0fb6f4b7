#include "gpt2/distributed/discover.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <vector>

#include "base/errors.h"
#include "base/sha256.h"

namespace gpt2::distributed {
namespace {

using stepscope::InputError;

// Slurm runs this process, but not as one of several tasks.
struct NoRankOfSlurm : InputError {
  using InputError::InputError;
};

// The variables of one starter.
class Variables {
 public:
  Variables(const Environment& environment, std::string starter) : environment_(environment), starter_(std::move(starter)) {}

  std::optional<std::string> maybe(const std::string& name) const { return environment_(name); }
  std::string text(const std::string& name) const {
    const auto value = environment_(name);
    if (!value || value->empty())
      throw InputError(fmt::format("{}: the variable {} is not set; expected it beside the others", starter_, name));
    return *value;
  }
  int number(const std::string& name) const {
    const std::string value = text(name);
    int n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (error != std::errc() || end != value.data() + value.size() || n < 0)
      throw InputError(fmt::format("{}: {} is '{}', expected a whole number", starter_, name, value));
    return n;
  }
  // A rank and how many there are.
  std::pair<int, int> place(const std::string& rank_name, const std::string& size_name) const {
    const int rank = number(rank_name), size = number(size_name);
    if (rank >= size)
      throw InputError(
          fmt::format("{}: {} is {} and {} is {}; expected a rank below the size", starter_, rank_name, rank, size_name, size));
    return {rank, size};
  }

 private:
  const Environment& environment_;
  std::string starter_;
};

World world_of(std::pair<int, int> place, std::pair<int, int> local, std::string job, std::string found_by) {
  World w;
  std::tie(w.rank, w.size) = place;
  std::tie(w.local_rank, w.local_size) = local;
  w.node = w.size == 1 ? 0 : -1;
  w.nodes = w.size == 1 ? 1 : -1;
  w.job = std::move(job);
  w.found_by = std::move(found_by);
  return w;
}
constexpr std::pair<int, int> kNotSaid{-1, -1};

// On one host ranks meet at a name in the kernel: no file stays behind, and every user of the host has names of their own.
std::string local_meeting(const std::string& job) {
  return fmt::format("unix:@stepscope-{}-{}", ::getuid(), sha256_text(job).substr(0, 16));
}

Start by_flags(const StartFlags& f) {
  if (!f.rank || !f.world)
    throw InputError(fmt::format("{}: expected {} with it", f.rank ? "--rank" : "--world", f.rank ? "--world" : "--rank"));
  if (*f.world < 1 || *f.world > 1 << 20 || *f.rank < 0 || *f.rank >= *f.world)
    throw InputError(fmt::format("--rank {} --world {}: expected a rank below the number of ranks", *f.rank, *f.world));
  if (*f.world > 1 && f.rendezvous.empty()) throw InputError("--rank: expected --rendezvous ADDRESS with it");
  Start s;
  s.world = world_of({static_cast<int>(*f.rank), static_cast<int>(*f.world)}, kNotSaid, f.rendezvous, "flags");
  s.meeting = f.rendezvous;
  return s;
}

Start by_launcher(const Environment& e) {
  const Variables v(e, "stepscope's own launcher");
  Start s;
  s.world = world_of(v.place("STEPSCOPE_RANK", "STEPSCOPE_WORLD"), {v.number("STEPSCOPE_LOCAL_RANK"), v.number("STEPSCOPE_WORLD")},
                     sha256_text(v.text("STEPSCOPE_TOKEN")).substr(0, 16), "stepscope");
  s.meeting = v.text("STEPSCOPE_RENDEZVOUS");
  return s;
}

Start by_torchrun(const Environment& e) {
  const Variables v(e, "torchrun");
  Start s;
  const std::string host = v.text("MASTER_ADDR");
  const int port = v.number("MASTER_PORT");
  s.world = world_of(v.place("RANK", "WORLD_SIZE"), v.place("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
                     v.maybe("TORCHELASTIC_RUN_ID").value_or("none") + fmt::format("@{}:{}", host, port), "torchrun");
  // torchrun's own store listens at MASTER_PORT.
  if (port < 1 || port > 65534) throw InputError(fmt::format("torchrun: MASTER_PORT is {}, expected 1 to 65534", port));
  s.meeting = fmt::format("tcp:{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port + 1);
  return s;
}

Start by_openmpi(const Environment& e, const StartFlags& f) {
  const Variables v(e, "mpirun");
  Start s;
  const auto place = v.place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  const auto local = v.place("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  std::string job = v.maybe("PMIX_NAMESPACE").value_or("");
  if (job.empty()) job = v.maybe("OMPI_MCA_ess_base_jobid").value_or("");
  s.world = world_of(place, local, job, "openmpi");
  if (place.second == 1 || !f.rendezvous.empty()) return s;
  if (local.second != place.second)
    throw InputError(
        "mpirun: the ranks are on several hosts, and it does not say where rank 0 is; expected --rendezvous tcp:HOST:PORT with rank 0's "
        "host");
  if (job.empty())
    throw InputError("mpirun: neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid is set; expected --rendezvous tcp:HOST:PORT with it");
  s.meeting = local_meeting(job);
  return s;
}

// nullopt: the program runs in a batch script or a shell of an allocation of one task.
std::optional<Start> by_slurm(const Environment& e, const StartFlags& f) {
  const Variables v(e, "Slurm");
  const int tasks = v.number("SLURM_NTASKS");
  if (!v.maybe("SLURM_STEP_NUM_TASKS")) {
    if (tasks == 1) return std::nullopt;
    throw NoRankOfSlurm(fmt::format(
        "Slurm: SLURM_NTASKS is {}, but this is the batch script and no step of its own; start the program with srun, or give --gpus",
        tasks));
  }
  const auto place = v.place("SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  if (place.second != tasks) {
    const std::string what = fmt::format("Slurm: this step has {} task{} and the job {}; start the program with srun -n {}", place.second,
                                         place.second == 1 ? "" : "s", tasks, tasks);
    if (place.second == 1) throw NoRankOfSlurm(what + ", or give --gpus");
    throw InputError(what);
  }
  Start s;
  const std::string job = v.text("SLURM_JOB_ID"), step = v.text("SLURM_STEP_ID");
  s.world = world_of(place, {v.number("SLURM_LOCALID"), -1}, job + "." + step, "slurm");
  s.world.node = v.number("SLURM_NODEID");
  if (place.second == 1) {
    s.world.local_size = 1;
    return s;
  }
  if (!f.rendezvous.empty()) return s;
  const std::string nodes = v.text("SLURM_STEP_NODELIST");
  const bool one_node = nodes.find(',') == std::string::npos && nodes.find('[') == std::string::npos;
  // Above the ports that services like, below those that the kernel hands out for outgoing connections.
  const uint64_t port = 20000 + std::strtoull(sha256_text(s.world.job).substr(0, 8).c_str(), nullptr, 16) % 10000;
  s.meeting = one_node ? local_meeting("slurm-" + s.world.job) : fmt::format("tcp:{}:{}", first_host(nodes), port);
  return s;
}

Start by_mpich(const Environment& e, const StartFlags& f) {
  const Variables v(e, "mpiexec");
  Start s;
  const auto place = v.place("PMI_RANK", "PMI_SIZE");
  std::pair<int, int> local = kNotSaid;
  if (v.maybe("MPI_LOCALRANKID")) local.first = v.number("MPI_LOCALRANKID");
  s.world = world_of(place, place.second == 1 ? std::pair{0, 1} : local, v.maybe("PMI_JOBID").value_or(f.rendezvous), "mpich");
  if (place.second > 1 && f.rendezvous.empty())
    throw InputError("mpiexec: it does not say where rank 0 is; expected --rendezvous unix:@NAME on one host, tcp:HOST:PORT on several");
  return s;
}

// Ranks may call rank 0's host by several names, and whoever reached it there has the right one: two runs on it listen at two ports.
std::string without_host(const std::string& address) {
  return address.starts_with("tcp:") ? "tcp" + address.substr(address.rfind(':')) : address;
}

std::map<std::string, std::string> seen_variables(const Environment& e) {
  std::map<std::string, std::string> seen;
  for (const char* name : {"STEPSCOPE_RANK",
                           "STEPSCOPE_WORLD",
                           "STEPSCOPE_LOCAL_RANK",
                           "RANK",
                           "WORLD_SIZE",
                           "LOCAL_RANK",
                           "GROUP_RANK",
                           "TORCHELASTIC_RUN_ID",
                           "OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK",
                           "PMIX_NAMESPACE",
                           "SLURM_PROCID",
                           "SLURM_NTASKS",
                           "SLURM_JOB_ID",
                           "SLURM_STEP_ID",
                           "SLURM_STEP_NUM_TASKS",
                           "SLURM_NODEID",
                           "PMI_RANK",
                           "PMI_SIZE"})
    if (const auto value = e(name)) seen.emplace(name, *value);
  return seen;
}

// MPICH and Intel MPI start their ranks by a proxy on each host, which is a task of a step of Slurm's, or from the batch script: there are more
// processes than Slurm started.
bool mpich_is_inside_slurm(const Environment& e) {
  if (!e("PMI_SIZE")) return false;
  const int tasks = e("SLURM_STEP_NUM_TASKS") ? Variables(e, "Slurm").number("SLURM_STEP_NUM_TASKS") : 1;
  return Variables(e, "mpiexec").number("PMI_SIZE") > tasks;
}

Start innermost(const StartFlags& f, const Environment& e) {
  if (f.rank || f.world) return by_flags(f);
  if (e("STEPSCOPE_RANK")) return by_launcher(e);
  // RANK alone is a name that anybody may use.
  if (e("TORCHELASTIC_RUN_ID") || (e("RANK") && e("WORLD_SIZE"))) return by_torchrun(e);
  if (e("OMPI_COMM_WORLD_RANK") || e("OMPI_COMM_WORLD_SIZE")) return by_openmpi(e, f);
  if (e("SLURM_PROCID") && e("SLURM_NTASKS") && !mpich_is_inside_slurm(e)) {
    if (auto s = by_slurm(e, f)) return *s;
  } else if (e("PMI_RANK") || e("PMI_SIZE")) {
    return by_mpich(e, f);
  }
  Start alone;
  alone.world.found_by = "alone";
  return alone;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

Start discover(const StartFlags& flags, const Environment& environment) {
  Start s = innermost(flags, environment);
  s.recorded = seen_variables(environment);
  if (s.world.size == 1) {
    if (!flags.rendezvous.empty() && s.world.found_by == "alone")
      throw InputError("--rendezvous: nobody started several ranks; expected --rank and --world, mpirun, torchrun or srun with it");
    s.meeting.clear();
    s.world.local_rank = s.world.node = 0;
    s.world.local_size = s.world.nodes = 1;
    return s;
  }
  if (!flags.rendezvous.empty()) s.meeting = flags.rendezvous;
  // Without a token of the launcher's this protects against mix-ups of runs, not against attackers: anybody can compute it.
  const auto token = environment("STEPSCOPE_TOKEN");
  s.token = token ? *token : sha256_text(fmt::format("{} {} {}", s.world.found_by, without_host(s.world.job), ::getuid()));
  return s;
}

std::optional<World> started_already(const Environment& environment) {
  StartFlags anywhere;
  anywhere.rendezvous = "unix:@";  // or mpirun's ranks would have to say where
  try {
    const World world = innermost(anywhere, environment).world;
    return world.size > 1 ? std::optional(world) : std::nullopt;
  } catch (const NoRankOfSlurm&) {
    return std::nullopt;
  }
}

std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t end = list.find_first_of(",-]", i + 1), close = list.find(']', i + 1);
    if (close == std::string::npos) throw InputError(fmt::format("Slurm: the node list '{}' has no ']'", list));
    host += list.substr(i + 1, end - i - 1);
    i = close;
  }
  if (host.empty()) throw InputError(fmt::format("Slurm: the node list '{}' names no host", list));
  return host;
}

}  // namespace gpt2::distributed

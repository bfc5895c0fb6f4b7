#include "profiler/collect/rank.h"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/read_file.h"

namespace profiler::collect {
namespace {

struct Starter {
  const char *rank, *size, *job;
  const char* more = nullptr;   // of the job's name; a job of Slurm has many steps, and a run is one of them
  bool may_hold_mpich = false;  // whose ranks are more than the tasks of the step that holds them
};
constexpr std::array<Starter, 5> kStarters = {{
    {"STEPSCOPE_RANK", "STEPSCOPE_WORLD", "STEPSCOPE_JOB"},
    {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_STEP_ID", true},  // the batch script itself has no STEP_NUM_TASKS
    {"PMI_RANK", "PMI_SIZE", "PMI_JOBID"},
}};

std::string job_of(const Environment& environment, const Starter& s) {
  const std::string job = environment(s.job), more = s.more ? environment(s.more) : "";
  return job + (job.empty() || more.empty() ? "" : ".") + more;
}

std::optional<int64_t> whole(const std::string& text) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(v) : std::nullopt;
}

std::string one_line(const char* file) {
  try {
    std::string text = stepscope::read_file(file);
    while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
    return text;
  } catch (const std::exception&) {
    return "";
  }
}

// The GNU build id among the notes of the executable, which the dynamic linker lists first.
int take_build_id(dl_phdr_info* info, size_t, void* out) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    const char* const end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* name = at + sizeof note;
      const char* description = name + (note.n_namesz + 3) / 4 * 4;
      if (description + note.n_descsz > end) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        constexpr char kDigits[] = "0123456789abcdef";
        auto& text = *static_cast<std::string*>(out);
        for (ElfW(Word) b = 0; b < note.n_descsz; ++b) {
          const auto byte = static_cast<unsigned char>(description[b]);
          text += kDigits[byte >> 4];
          text += kDigits[byte & 15];
        }
        return 1;
      }
      at = description + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return 1;  // the first object is the executable; the others are libraries
}

std::string time_namespace() {
  std::array<char, 64> text{};
  const ssize_t n = readlink("/proc/self/ns/time", text.data(), text.size() - 1);
  return n > 0 ? std::string(text.data(), static_cast<size_t>(n)) : "";
}

}  // namespace

std::optional<RankRecord> rank_from(const Environment& environment, const std::string& job) {
  for (const Starter& s : kStarters) {
    const auto rank = whole(environment(s.rank)), size = whole(environment(s.size));
    if (!rank || !size) continue;
    if (s.may_hold_mpich && whole(environment("PMI_SIZE")).value_or(0) > *size) continue;
    if (*size < 2 || *rank < 0 || *rank >= *size) return std::nullopt;
    RankRecord r;
    r.rank = *rank;
    r.size = *size;
    r.job = job.empty() ? job_of(environment, s) : job;
    return r;
  }
  return std::nullopt;
}

std::optional<RankRecord> rank_of_process(const std::string& job) {
  auto r = rank_from(
      [](const char* name) {
        const char* value = std::getenv(name);
        return std::string(value ? value : "");
      },
      job);
  if (!r) return r;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) r->host = host.data();
  r->boot_id = one_line("/proc/sys/kernel/random/boot_id");
  r->time_namespace = time_namespace();
  dl_iterate_phdr(take_build_id, &r->build);
  return r;
}

}  // namespace profiler::collect

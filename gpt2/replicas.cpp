#include "gpt2/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "base/checksum.h"
#include "base/text.h"

namespace gpt2 {

void compare_replicas(distributed::ControlChannel& channel, std::span<const float> parameters, const std::string& when) {
  const std::string mine = fmt::format("{:016x}", Checksum::of(std::as_bytes(parameters)));
  const auto all = channel.all_gather({mine.begin(), mine.end()});
  std::map<distributed::Bytes, std::vector<int>> by_sum;
  for (size_t r = 0; r < all.size(); ++r) by_sum[all[r]].push_back(static_cast<int>(r));
  if (by_sum.size() == 1) return;
  const auto fewest = std::min_element(by_sum.begin(), by_sum.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.size(), -a.second.front()) < std::pair(b.second.size(), -b.second.front());
  });
  const std::vector<int>& ranks = fewest->second;
  throw distributed::RankFailure(
      {ranks.front(), fmt::format("the weights of {} differ from those of the others {}", stepscope::named_ranks(ranks), when), 1});
}

std::vector<double> losses_of_all_ranks(distributed::ControlChannel& channel, const std::vector<double>& mine, int64_t count) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(mine.data());
  const auto all = channel.all_gather({bytes, bytes + mine.size() * sizeof(double)});
  std::vector<double> in_order(static_cast<size_t>(count));
  for (size_t i = 0; i < in_order.size(); ++i)
    std::memcpy(&in_order[i], all[i % all.size()].data() + i / all.size() * sizeof(double), sizeof(double));
  return in_order;
}

std::string rank_file(const std::string& file, int rank) {
  if (rank == 0) return file;
  const std::filesystem::path path = file;
  std::error_code unknown;
  if (std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown)) return "";
  return (path.parent_path() / fmt::format("{}.rank{}{}", path.stem().string(), rank, path.extension().string())).string();
}

}  // namespace gpt2

#include "gpt2/distributed/agreement.h"

#include <fmt/format.h>

#include <new>

#include "base/text.h"

namespace gpt2::distributed {

Failure failure_of_current_exception(int rank) {
  try {
    throw;
  } catch (const RankFailure& e) {
    return e.failure;
  } catch (const stepscope::InputError& e) {
    return {rank, e.what(), 2};
  } catch (const stepscope::MachineError& e) {
    return {rank, e.what(), 3};
  } catch (const std::bad_alloc&) {
    return {rank, "out of host memory", 3};
  } catch (const std::exception& e) {
    return {rank, e.what(), 1};
  }
}

void agree(ControlChannel* channel, const std::function<void()>& work) {
  if (channel == nullptr) return work();
  std::string mine;
  try {
    work();
  } catch (const RankFailure&) {
    throw;  // this rank, or all, cannot go on: there is nobody to agree with
  } catch (...) {
    const Failure f = failure_of_current_exception(channel->world().rank);
    mine = fmt::format("{}{}", f.exit_code, f.what);
  }
  const std::vector<Bytes> all = channel->all_gather(Bytes(mine.begin(), mine.end()));
  std::string text;
  std::vector<int> ranks;
  bool same = true;
  for (size_t r = 0; r < all.size(); ++r) {
    const std::string one(all[r].begin(), all[r].end());
    if (one.empty()) continue;
    if (ranks.empty()) text = one;
    if (one == text) ranks.push_back(static_cast<int>(r));
    same = same && one == text;
  }
  if (ranks.empty()) return;
  const int code = text[0] - '0';
  text.erase(0, 1);
  if (same && ranks.size() == all.size()) throw RankFailure({-1, text, code});
  throw RankFailure({ranks.front(), fmt::format("{}: {}", stepscope::named_ranks(ranks), text), code});
}

std::string from_rank_0(ControlChannel& channel, const std::string& mine) {
  const Bytes first = channel.all_gather(Bytes(mine.begin(), mine.end()))[0];
  return {first.begin(), first.end()};
}

}  // namespace gpt2::distributed

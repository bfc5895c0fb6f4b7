#include "gpt2/distributed/socket_channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/handed_on_signals.h"
#include "gpt2/distributed/data_links.h"
#include "gpt2/distributed/rank_page.h"
#include "gpt2/distributed/sockets.h"

namespace gpt2::distributed {
namespace {

constexpr uint32_t kFrameMagic = 0x53534354;
enum class Say : uint32_t { beat, finished, fail, verdict, stop_please, stop_after, stop_seen, goodbye };
struct Frame {
  uint32_t magic = kFrameMagic;
  Say what = Say::beat;
  uint32_t bytes = 0;
};
struct Finished {
  int64_t step = 0;
  uint64_t loss = 0, norm = 0;
};
struct Verdict {
  int32_t rank = -1, exit_code = 3;
};

template <class T>
std::string raw(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
template <class T>
T from_raw(const std::string& bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}
std::string raw(const Failure& f) { return raw(Verdict{f.rank, f.exit_code}) + f.what; }
Failure failure_of(const std::string& bytes) {
  const auto v = from_raw<Verdict>(bytes);
  return {v.rank, bytes.substr(std::min(bytes.size(), sizeof v)), v.exit_code};
}

class Channel final : public SocketChannel {
 public:
  Channel(World world, std::vector<Peer> peers, const ChannelOptions& options)
      : world_(std::move(world)),
        peers_(std::move(peers)),
        options_(options),
        data_(world_, data_sockets()),
        watch_(names(), watched(), options.limits, seconds_now()),
        page_(RankPage::inherited(world_.size)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        inbox_(peers_.size()) {
    if (options_.take_signals) {
      const sigset_t set = stepscope::heard_of(stepscope::ending_signals());
      ::pthread_sigmask(SIG_BLOCK, &set, &signals_before_);
      signals_ = Descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    }
    progress_s_ = seconds_now();
    thread_ = std::thread([this] { run(); });
  }
  ~Channel() override {
    ending_ = true;
    wake();
    thread_.join();
    if (options_.take_signals) ::pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
  }

  const World& world() const override { return world_; }
  std::vector<Bytes> all_gather(const Bytes& mine) override {
    return guarded([&] { return data_.all_gather(mine); });
  }
  void exchange(const Collective& c, void* data) override {
    guarded([&] {
      data_.exchange(c, data);
      return 0;
    });
  }
  std::optional<Failure> failure() override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void abort() noexcept override { data_.shut(); }

  void settle_places(const std::string& host_id) override {
    std::vector<std::string> ids;
    for (const Bytes& b : all_gather(Bytes(host_id.begin(), host_id.end()))) ids.emplace_back(b.begin(), b.end());
    World placed = with_places(world_, ids);
    const std::lock_guard lock(mutex_);  // the watching thread reads rank and size
    world_ = std::move(placed);
  }
  void waits(bool yes) override { set_waits(yes); }
  void now(Phase phase, int64_t step) override {
    const std::lock_guard lock(mutex_);
    progress_s_ = seconds_now();
    // A validation or a checkpoint between two steps is no time of the second one, or a hang would be left alone for twenty of them.
    if (phase == Phase::step && beat_.phase != Phase::step && finished_s_ > 0) finished_s_ = progress_s_;
    beat_.phase = phase;
    beat_.step = step;
    if (page_) page_->slot(world_.rank).step = step;
  }
  void finished(int64_t step, double loss, double norm) override {
    const std::lock_guard lock(mutex_);
    const double t = seconds_now();
    if (finished_s_ > 0) steps_s_.push_back(t - finished_s_);
    if (steps_s_.size() > 64) steps_s_.pop_front();
    finished_s_ = progress_s_ = t;
    const Finished f{step, std::bit_cast<uint64_t>(loss), std::bit_cast<uint64_t>(norm)};
    if (world_.rank == 0) return watch_.finished(0, step, f.loss, f.norm);
    queue(Say::finished, raw(f));
  }
  std::optional<int64_t> last_step(int64_t enqueued) override {
    std::unique_lock lock(mutex_);
    if (failure_) throw RankFailure(*failure_);
    if (world_.rank != 0 || stop_after_ || !stop_asked_) return stop_after_;
    // Another rank may have enqueued step enqueued + 2 already, and not asked again since: with two steps in flight it waits there for step
    // enqueued + 1, which this rank has not begun. So the step after that is the first that all ask about, provided that this rank begins none
    // before they have heard.
    stop_after_ = enqueued + 3;
    queue(Say::stop_after, raw(*stop_after_));
    changed_.wait(lock, [&] { return failure_ || stop_seen_ == world_.size - 1; });
    if (failure_) throw RankFailure(*failure_);
    return stop_after_;
  }

  Failure fail(const Failure& mine) override {
    std::unique_lock lock(mutex_);
    if (failure_) return *failure_;
    if (world_.rank == 0) {
      decide(mine);
      wake();
    } else {
      queue(Say::fail, raw(mine));
    }
    // Long enough for an answer over the network; without one this rank's own reason stands.
    changed_.wait_for(lock, std::chrono::duration<double>(2), [&] { return failure_ && outbox_.empty(); });
    if (!failure_) decide(mine);
    return *failure_;
  }
  bool told_by_rank_0() override {
    const std::lock_guard lock(mutex_);
    return told_by_rank_0_;
  }
  void close() override {
    all_gather({});
    std::unique_lock lock(mutex_);
    leaving_ = true;
    queue(Say::goodbye, "");
    changed_.wait(lock, [&] { return outbox_.empty(); });
  }

 private:
  std::vector<int> data_sockets() const {
    std::vector<int> fds;
    for (const Peer& p : peers_) fds.push_back(p.data.get());
    return fds;
  }
  std::vector<int> watched() const {
    if (world_.rank != 0) return {0};
    std::vector<int> all;
    for (int r = 1; r < world_.size; ++r) all.push_back(r);
    return all;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (int r = 0; r < world_.size; ++r) {
      const bool known = static_cast<size_t>(r) < peers_.size() && !peers_[static_cast<size_t>(r)].host.empty();
      const Peer* p = known ? &peers_[static_cast<size_t>(r)] : nullptr;
      out.push_back(p ? fmt::format("rank {} (pid {} on {})", r, p->pid, p->host) : fmt::format("rank {}", r));
    }
    return out;
  }

  template <class Call>
  std::invoke_result_t<Call> guarded(Call call) {
    set_waits(true);
    try {
      auto result = call();
      set_waits(false);
      return result;
    } catch (const LinkLost& lost) {
      end_of_link({lost.rank, fmt::format("the connection to rank {} ended", lost.rank)});
    } catch (const CallsDiffer& differ) {
      end_of_link(fail({differ.rank, differ.what, 1}));
    }
  }
  void set_waits(bool waits) {
    const std::lock_guard lock(mutex_);
    beat_.waits = waits;
    progress_s_ = seconds_now();
  }
  // The watchdog knows more than this thread, but maybe a little later.
  [[noreturn]] void end_of_link(const Failure& mine) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(options_.limits.silence_s + 1), [&] { return failure_.has_value(); });
    if (!failure_) decide(mine);
    throw RankFailure(*failure_);
  }

  // ---- the watchdog's thread; all below with mutex_ held, but for run() -------------------------------------------------------------
  void run() {
    double last_turn = seconds_now(), beat_at = 0;
    while (!ending_) {
      wait();
      const double t = seconds_now();
      std::unique_lock lock(mutex_);
      if (const double gone = t - last_turn; gone > 1) {  // this process was stopped, or its machine: nobody stalled, it neither
        watch_.was_away(t);
        progress_s_ += gone;
      }
      last_turn = t;
      take_signals(lock);
      hear(t);
      if (t >= beat_at) {
        beat_at = t + options_.beat_every_s;
        send_beats(t);
      }
      send_queued();
      if (!failure_ && !leaving_)
        if (const auto found = watch_.judge(t)) decide(*found);
      if (failure_ && t > failed_s_ + options_.grace_s) give_up();
    }
  }
  void wait() const {
    std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
    if (signals_) fds.push_back({signals_.get(), POLLIN, 0});
    for (size_t i = 0; i < peers_.size(); ++i)
      if (peers_[i].control && !inbox_[i].closed) fds.push_back({peers_[i].control.get(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), static_cast<int>(options_.beat_every_s * 1e3));
    uint64_t drained = 0;
    (void)!::read(wake_.get(), &drained, sizeof drained);
  }
  void wake() const {
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
  }
  void queue(Say what, const std::string& bytes) {
    outbox_.emplace_back(what, bytes);
    wake();
  }

  void send(size_t peer, Say what, const std::string& bytes) {
    if (!peers_[peer].control || inbox_[peer].closed) return;
    Frame f;
    f.what = what;
    f.bytes = static_cast<uint32_t>(bytes.size());
    const std::string message = raw(f) + bytes;
    // A peer whose buffer is full has not read for seconds; its silence is noticed, so nothing waits for it here.
    (void)!::send(peers_[peer].control.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void send_to_all(Say what, const std::string& bytes) {
    for (size_t i = 0; i < peers_.size(); ++i) send(i, what, bytes);
  }
  void send_queued() {
    for (const auto& [what, bytes] : outbox_) send_to_all(what, bytes);
    if (!outbox_.empty()) changed_.notify_all();
    outbox_.clear();
  }
  void send_beats(double t) {
    beat_.quiet_s = t - progress_s_;
    beat_.limit_s = stall_limit();
    watch_.beat(world_.rank, beat_, t);
    send_to_all(Say::beat, raw(beat_));
  }
  double stall_limit() const {
    if (beat_.phase != Phase::step) return 0;
    if (steps_s_.size() < 3) return 60 * options_.limits.stall_s;  // first steps compile, search and allocate
    // Their mean: where a run empties its pipeline at every second step, two are finished at once, and every other time is 0.
    const double all = std::accumulate(steps_s_.begin(), steps_s_.end(), 0.0);
    return std::max(options_.limits.stall_s, 20 * all / static_cast<double>(steps_s_.size()));
  }

  void hear(double t) {
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (!peers_[i].control || inbox_[i].closed) continue;
      std::array<char, 4096> bytes;
      long n = 0;
      while ((n = receive_some(peers_[i].control.get(), bytes.data(), bytes.size())) > 0)
        inbox_[i].text.append(bytes.data(), static_cast<size_t>(n));
      read_frames(static_cast<int>(i), t);
      if (n < 0) {
        inbox_[i].closed = true;
        watch_.closed(static_cast<int>(i));
      }
    }
  }
  void read_frames(int peer, double t) {
    std::string& text = inbox_[static_cast<size_t>(peer)].text;
    size_t at = 0;
    while (text.size() - at >= sizeof(Frame)) {
      const auto f = from_raw<Frame>(text.substr(at, sizeof(Frame)));
      if (f.magic != kFrameMagic) {
        inbox_[static_cast<size_t>(peer)].closed = true;
        return watch_.closed(peer);
      }
      if (text.size() - at < sizeof(Frame) + f.bytes) break;
      handle(peer, f.what, text.substr(at + sizeof(Frame), f.bytes), t);
      at += sizeof(Frame) + f.bytes;
    }
    text.erase(0, at);
  }
  void handle(int peer, Say what, const std::string& bytes, double t) {
    switch (what) {
      case Say::beat:
        return watch_.beat(peer, from_raw<Beat>(bytes), t);
      case Say::finished: {
        const auto f = from_raw<Finished>(bytes);
        return watch_.finished(peer, f.step, f.loss, f.norm);
      }
      case Say::verdict:
        told_by_rank_0_ = told_by_rank_0_ || !failure_;
        return decide(failure_of(bytes));
      case Say::fail:
        return decide(failure_of(bytes));
      case Say::stop_please:
        stop_asked_ = true;
        return;
      case Say::stop_after:
        stop_after_ = from_raw<int64_t>(bytes);
        return queue(Say::stop_seen, "");
      case Say::stop_seen:
        ++stop_seen_;
        return changed_.notify_all();
      case Say::goodbye:
        return watch_.goodbye(peer);
    }
  }

  // The first reason stands. Rank 0 tells it to all.
  void decide(const Failure& f) {
    if (failure_) return;
    failure_ = f;
    failed_s_ = seconds_now();
    if (page_) page_->tell(world_.rank, f);
    if (world_.rank == 0) queue(Say::verdict, raw(f));
    data_.shut();
    changed_.notify_all();
  }
  void take_signals(std::unique_lock<std::mutex>&) {
    if (!signals_) return;
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      // A signal of this process to itself says that nobody reads its steps, which may come before or behind the user's: not his second one.
      const bool own = static_cast<pid_t>(info.ssi_pid) == ::getpid();
      const double t = seconds_now();
      // A terminal or a starter tells each process, and often in two ways.
      if (!own && asked_here_s_ && t - *asked_here_s_ <= stepscope::kSameSignal_s) continue;
      const bool again = !own && asked_here_s_;
      if (!own && !again) asked_here_s_ = t;
      if (again || beat_.phase == Phase::start) {
        const Failure f{world_.rank, fmt::format("interrupted {}", place_of(beat_)), 130};
        if (world_.rank == 0) {
          decide(f);
        } else {
          queue(Say::fail, raw(f));
        }
      } else if (world_.rank == 0) {
        stop_asked_ = true;
      } else {
        queue(Say::stop_please, "");
      }
    }
  }
  // The main thread does not come back from where it is.
  [[noreturn]] void give_up() {
    send_queued();
    const std::string text = fmt::format("stepscope: {} (rank {} did not end by itself)\n", failure_->what, world_.rank);
    (void)!::write(STDERR_FILENO, text.data(), text.size());
    ::_exit(failure_->exit_code);
  }

  struct Inbox {
    std::string text;
    bool closed = false;
  };
  World world_;              // rank and size never change, its place does once
  std::vector<Peer> peers_;  // rank 0: [rank]; others: [0]
  const ChannelOptions options_;
  DataLinks data_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Watch watch_;
  std::optional<RankPage> page_;
  Descriptor wake_, signals_;
  sigset_t signals_before_{};
  std::vector<Inbox> inbox_;
  std::deque<std::pair<Say, std::string>> outbox_;
  std::optional<Failure> failure_;
  bool told_by_rank_0_ = false;
  double failed_s_ = 0;
  Beat beat_;
  double progress_s_ = 0, finished_s_ = 0;
  std::deque<double> steps_s_;  // of the last finished steps
  bool stop_asked_ = false, leaving_ = false;
  std::optional<double> asked_here_s_;  // when this process was told to end
  std::optional<int64_t> stop_after_;
  int stop_seen_ = 0;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace

World with_places(World w, const std::vector<std::string>& ids) {
  std::vector<std::string> hosts;
  int before = 0, here = 0;
  const std::string& mine = ids[static_cast<size_t>(w.rank)];
  for (size_t r = 0; r < ids.size(); ++r) {
    if (std::find(hosts.begin(), hosts.end(), ids[r]) == hosts.end()) hosts.push_back(ids[r]);
    if (ids[r] != mine) continue;
    ++here;
    if (static_cast<int>(r) < w.rank) ++before;
  }
  if (w.local_rank < 0) w.local_rank = before;
  if (w.local_size < 0) w.local_size = here;
  w.node = static_cast<int>(std::find(hosts.begin(), hosts.end(), mine) - hosts.begin());
  w.nodes = static_cast<int>(hosts.size());
  return w;
}

std::unique_ptr<SocketChannel> make_socket_channel(World world, std::vector<Peer> peers, const ChannelOptions& options) {
  return std::make_unique<Channel>(std::move(world), std::move(peers), options);
}

}  // namespace gpt2::distributed

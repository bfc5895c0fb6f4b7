// `train` as one of several ranks: how they are started, how they meet, and what must be the same on all before they train.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/announced_communicator.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "gpt2/distributed/bucket_size.h"
#include "gpt2/distributed/communicator.h"
#include "gpt2/distributed/identity.h"
#include "gpt2/distributed/socket_channel.h"
#include "gpt2/trainer.h"

namespace cli {

// How ranks exchange gradients.
struct ExchangeFlags {
  std::string communicator = "auto";
  int64_t bucket_mib = 0;                  // 0: gpt2/distributed/bucket_size.h chooses
  int64_t nccl_blocks = 0;                 // 0: STEPSCOPE_NCCL_CTAS, or what NCCL chooses
  std::vector<const Argument*> arguments;  // as they were added
};
void add_exchange_flags(Command& command, ExchangeFlags& flags);
// What --bucket-mib is, or where it was not given what these ranks take for a step of this size. `options` has its communicator.
int64_t bucket_mib_of(const ExchangeFlags& flags, const gpt2::TrainerOptions& options, const gpt2::distributed::StepSize& step);
// Throws stepscope::InputError for what `trainer`, as settled, has no use for. No GPU is asked for.
void check_exchange(const ExchangeFlags& flags, const std::string& trainer);
// The same flags as arguments for `stepscope train --gpus N`.
std::vector<std::string> as_arguments(const ExchangeFlags& flags);

struct RankFlags {
  int64_t gpus = 0;  // 0: not given
  int64_t rank = -1, world = 0;
  std::string rendezvous;
  ExchangeFlags exchange;
  double rendezvous_timeout_s = 120, stall_timeout_s = 5, silence_timeout_s = 5;
  int64_t total_batch = 0;                  // tokens of a step over all ranks; 0: not given
  std::vector<const Argument*> of_several;  // flags that a process alone has no use for
};

void add_rank_flags(Command& command, RankFlags& flags);
std::vector<std::string> communicators();  // what --communicator can be

// "this process is rank 1 of 3", of one that somebody started as one of several.
std::string this_process_is(int64_t rank, int64_t ranks);
// Throws stepscope::InputError, "FLAG: this process is rank 1 of 3 (started by mpich), WHY", where a starter has made this process one of several.
void refuse_one_of_several(const std::string& flag, const std::string& why);
// The same of a command that starts the ranks of --gpus N.
void refuse_to_start_ranks_again(int64_t gpus);

// With --gpus N this process only starts the ranks and waits for them: the exit code. nullopt: it trains itself. `trainer` as settled:
// one that needs GPUs needs N of them. Throws InputError and MachineError.
std::optional<int> launch_ranks(const RankFlags& flags, const std::string& trainer, const CommandLine& line);

// One rank's side of a run with several. Everything that a rank cannot do ends in the same RankFailure on all.
class RankSession {
 public:
  // nullptr: this process trains alone. Waits for the other ranks. Throws InputError and MachineError.
  static std::unique_ptr<RankSession> join(const RankFlags& flags);

  gpt2::distributed::SocketChannel& channel() { return *channel_; }
  const gpt2::distributed::World& world() const { return channel_->world(); }
  bool is_first() const { return world().rank == 0; }
  // Throws stepscope::InputError, the same on every rank.
  void compare(const gpt2::distributed::Identity& identity);
  // After compare(): which GPU, and how gradients travel. `trainer` as settled. `on_cpu` hears the collectives of the reference trainer as long as
  // any are enqueued, and may be null; those of a GPU trainer are in NVTX ranges.
  gpt2::distributed::Communicator& connect(const RankFlags& flags, const std::string& trainer, CollectiveListener* on_cpu = nullptr);

  // Once the run is complete and the trainer gone, on every rank: lets go of the communicator.
  void leave() { communicator_.reset(); }
  // Once the run has failed: ends what waits for other ranks, so that the trainer can be destroyed.
  void disconnect();

 private:
  RankSession() = default;
  std::string host_id_;
  std::unique_ptr<gpt2::distributed::SocketChannel> channel_;
  std::unique_ptr<gpt2::distributed::Communicator> communicator_;
};

// Ends the process of a rank whose run is over, if it hangs in what is left: a driver, NCCL or a library's exit handler. Its thread runs on
// until the process is gone.
class EndOfRank {
 public:
  EndOfRank(int rank, int exit_code);
  // What the rank does from here on, for the message, and in how many seconds; 0: as long as it takes.
  void doing(const char* what, double within_s);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// --accumulation that makes a step of `total_batch` tokens; throws InputError naming the totals nearby that work.
int64_t accumulation_for(int64_t total_batch, int64_t batch_size, int64_t seq_len, int ranks);

// The build, the machine with its driver and libraries, and the flags of this rank; `arguments` as as_arguments() gives them.
gpt2::distributed::Identity identity_of(const std::vector<std::string>& arguments, const std::string& trainer);

}  // namespace cli

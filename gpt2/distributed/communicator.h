// What ranks say to each other during a step. A trainer sees only this; who carries it (NCCL, copies between GPUs, host memory, threads of one process) is
// chosen when the run starts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "gpt2/distributed/world.h"

namespace gpt2::distributed {

enum class Element { fp32, bf16, fp64 };
constexpr int64_t bytes_of(Element e) { return e == Element::bf16 ? 2 : e == Element::fp32 ? 4 : 8; }

// All are in place on one array of `elements`, which reduce_scatter and all_gather cut into `World::size` equal slices, slice r for rank r.
//   all_reduce: every rank ends with the sum over ranks, the same bits on each.
//   reduce_scatter: rank r ends with the sum in slice r; its other slices are undefined.
//   all_gather: rank r brings slice r; every rank ends with all of them.
enum class CollectiveKind { all_reduce, reduce_scatter, all_gather };

struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Element type = Element::fp32;
  int64_t elements = 0;  // of the whole array; a multiple of World::size for reduce_scatter and all_gather
  int bucket = 0;        // which piece of the gradients or weights, for messages and profiles
};

// A rank that is gone, hangs or disagrees.
struct Failure {
  int rank = -1;     // -1: not known
  std::string what;  // one sentence for a user
  int exit_code = 3;
};

// Thrown on every rank of a run that cannot go on, with the same text; `failure` names the rank that it is about.
struct RankFailure : stepscope::MachineError {
  explicit RankFailure(Failure f) : MachineError(f.what), failure(std::move(f)) {}
  Failure failure;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual const World& world() const = 0;
  // All ranks enqueue the same collectives in the same order. `data` is device memory of this rank's GPU, `stream` a cudaStream_t; a
  // communicator whose memory_is_host() takes host memory and ignores the stream.
  // Returns without waiting where is_asynchronous(); otherwise when `data` holds the result.
  virtual void enqueue(const Collective& collective, void* data, void* stream) = 0;
  // Device memory in which a rank receives collectives whose slices, one rank's part of the array, have at most `slice_bytes`.
  virtual int64_t receive_bytes(int64_t /*slice_bytes*/) const { return 0; }
  // Takes that memory, before the first such collective. All ranks call it with the same number, with nothing queued; throws on all of them.
  virtual void reserve(int64_t /*slice_bytes*/) {}
  // Device memory in which all-gathers take place, so that other ranks may write into it; all ranks call with the same size, with nothing
  // queued. The last call counts. Then, before the memory is freed and with nothing queued, unshare; it waits for the others, but not long.
  virtual void share(void* /*memory*/, int64_t /*bytes*/) {}
  virtual void unshare() noexcept {}
  virtual bool memory_is_host() const = 0;
  virtual bool is_asynchronous() const = 0;  // only then may a CUDA graph capture it
  virtual std::string name() const = 0;      // "nccl 2.28.9" | "peer" | "staged" | "threads"
  // Polled by the watchdog and by finish_step.
  virtual std::optional<Failure> failure() = 0;
  // Makes whatever waits for another rank end. Afterwards only destruction is allowed.
  virtual void abort() noexcept = 0;
};

using Bytes = std::vector<unsigned char>;

// Where the main thread of a rank is, for the watchdog: a rank that leaves `step` unfinished for too long is stuck, one that writes a
// checkpoint is not.
enum class Phase { start, step, evaluation, checkpoint, end };

// Host-side messages between the ranks, outside of steps. Every rank makes the same calls in the same order; each call waits for all
// and ends with RankFailure, which names the rank that did not come, when the watchdog gives a rank up.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  virtual const World& world() const = 0;
  virtual std::vector<Bytes> all_gather(const Bytes& mine) = 0;  // [rank]
  // The collective over host memory: returns when `data` holds the result. fp32 and fp64 are added in the order of the ranks, bf16 in
  // fp32 in that order and rounded once. This default gathers every rank's array.
  virtual void exchange(const Collective& collective, void* data);

  // What the watchdog found, on this rank or told by another; polled.
  virtual std::optional<Failure> failure() { return std::nullopt; }
  // Makes a call that waits for another rank, now or later, end with RankFailure.
  virtual void abort() noexcept {}

  // What the watchdog judges by: where the main thread is, and the numbers of a finished step, which must have the same bits on all ranks.
  virtual void now(Phase, int64_t /*step*/) {}
  virtual void waits(bool /*yes*/) {}  // its main thread waits for its GPU, which may wait for another rank
  virtual void finished(int64_t /*step*/, double /*loss*/, double /*grad_norm*/) {}
  // Called before each step with the last one enqueued: the step after which all ranks leave the loop, once a user asked for the end.
  virtual std::optional<int64_t> last_step(int64_t /*enqueued*/) { return std::nullopt; }
};

}  // namespace gpt2::distributed

// One of the algorithms that cuBLASLt offers for a product in the place of all. Programs that link this stage have their
// cublasLtMatmulAlgoGetHeuristic redirected here (the linker's --wrap), in statically linked code; where no OneOffer lives it does what it
// always does. So a caller that asks for many gets each in turn; the mask with which it asks and what it does with the answer stay its own.
#pragma once

namespace gate {

// While it lives, this thread's questions are answered with one offer alone, the `number`-th from 0, or, where there are fewer, the one that a
// count that begins again comes to.
class OneOffer {
 public:
  explicit OneOffer(int number);
  ~OneOffer();
  OneOffer(const OneOffer&) = delete;  // there is one in a thread
  OneOffer& operator=(const OneOffer&) = delete;
  // The most offers that there were for one of the questions so far; 0: nobody has asked, or there were none.
  int most() const;
};

}  // namespace gate

#include "python/native/call.h"

#include <nlohmann/json.hpp>

#include <array>
#include <exception>
#include <map>
#include <new>
#include <string_view>

#include "fp32/variants.h"
#include "mixed/variants.h"

namespace ops_c {
namespace {

// Slots whose variants are kernels that need nothing of a trainer around them.
constexpr std::array<std::string_view, 6> kAlone = {"layernorm_forward",  "layernorm_backward", "attention_forward",
                                                    "attention_backward", "classifier",         "adamw"};

std::map<std::string, std::vector<std::string>> slots_that_stand_alone(const std::vector<gpt2::VariantInfo>& table) {
  std::map<std::string, std::vector<std::string>> slots;
  for (const gpt2::VariantInfo& info : table)
    for (const std::string_view slot : kAlone)
      if (info.slot == slot) slots[info.slot] = info.names;
  // Part of a product in every other variant.
  slots["gelu_forward"] = slots["gelu_backward"] = {"kernel"};
  slots["adamw"] = {"all_tensors"};
  // cross_entropy.cu; no trainer has it. First: the default.
  slots["classifier"].insert(slots["classifier"].begin(), "kept_sum");
  return slots;
}

std::string make_variants() {
  const nlohmann::json json = {{"fp32", slots_that_stand_alone(fp32::variant_table())},
                               {"mixed", slots_that_stand_alone(mixed::variant_table())}};
  return json.dump();
}

}  // namespace

std::string& last_error() {
  thread_local std::string text;
  return text;
}

int code_of_exception() noexcept {
  const auto remember = [](const char* text) noexcept {
    try {
      last_error() = text;
    } catch (...) {
      last_error().clear();  // no memory for a sentence
    }
  };
  try {
    throw;
  } catch (const stepscope::InputError& e) {
    remember(e.what());
    return STEPSCOPE_OPS_INPUT;
  } catch (const stepscope::MachineError& e) {
    remember(e.what());
    return STEPSCOPE_OPS_MACHINE;
  } catch (const std::exception& e) {
    remember(e.what());
    return STEPSCOPE_OPS_FAILED;
  } catch (...) {
    remember("an exception without a sentence");
    return STEPSCOPE_OPS_FAILED;
  }
}

void Check::refuse(const std::string& why) const { throw stepscope::InputError(std::string(function) + ": " + why); }

void Check::not_null(const void* pointer, const char* name) const {
  if (pointer == nullptr) refuse(std::string(name) + " is a null pointer");
}

void Check::at_least(int64_t value, int64_t least, const char* name) const {
  if (value < least) refuse(std::string(name) + " is " + std::to_string(value) + ", at least " + std::to_string(least) + " is expected");
}

void Check::storage(int storage) const {
  if (storage != STEPSCOPE_OPS_F32 && storage != STEPSCOPE_OPS_BF16)
    refuse("storage is " + std::to_string(storage) + ", expected 0 (float32) or 1 (bfloat16)");
}

void Check::storage_and_stream(int storage, int stream) const {
  this->storage(storage);
  if (stream != STEPSCOPE_OPS_F32 && stream != STEPSCOPE_OPS_BF16)
    refuse("stream is " + std::to_string(stream) + ", expected 0 (float32) or 1 (bfloat16)");
  if (storage == STEPSCOPE_OPS_F32 && stream == STEPSCOPE_OPS_BF16)
    refuse("a bfloat16 residual stream with float32 activations has no kernel; the pairs are float32 with float32, bfloat16 with either");
}

void Check::scratch(const void* scratch, int64_t given, int64_t needed) const {
  if (given < needed)
    refuse("scratch has " + std::to_string(given) + " bytes, " + std::to_string(needed) + " are needed (" + function + "_scratch)");
  if (needed > 0) not_null(scratch, "scratch");
  if (reinterpret_cast<uintptr_t>(scratch) % 16 != 0) refuse("scratch is not 16-byte aligned");
}

int variant_index(int storage, const char* function, const char* slot, const char* variant) {
  Check{function}.not_null(variant, "variant");
  return storage == STEPSCOPE_OPS_F32 ? fp32::variant_index(slot, variant) : mixed::variant_index(slot, variant);
}

}  // namespace ops_c

int stepscope_ops_abi(void) { return STEPSCOPE_OPS_ABI; }

const char* stepscope_ops_last_error(void) { return ops_c::last_error().c_str(); }

const char* stepscope_ops_variants(void) {
  static const std::string text = ops_c::make_variants();
  return text.c_str();
}

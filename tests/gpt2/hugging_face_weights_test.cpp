// model.safetensors to a checkpoint and back. The made model's values name (tensor, row, column) of Hugging Face's file, so that a matrix
// in the wrong place or not transposed is seen, the square attn.c_proj too.
#include "gpt2/data/hugging_face_weights.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "tests/gpt2/safetensors_file.h"

namespace gpt2 {
namespace {
using testing::bytes_of;
using testing::file_of;
using testing::named_config;
using testing::named_tensors;
using testing::named_value;
using testing::RawTensors;
using testing::read_bytes;
using testing::TemporaryFolder;

ImportedWeights import_named(const RawTensors& tensors) { return import_weights(file_of(tensors), "w", 2); }

// The parameters in the order of llm.c's write_tensors, written out: (out, in) for every matrix of a layer.
std::vector<float> expected_parameters() {
  std::vector<float> p;
  const auto plain = [&](const std::string& name, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) p.push_back(named_value(name, r, c));
  };
  const auto turned = [&](const std::string& name, int64_t out, int64_t in) {
    for (int64_t r = 0; r < out; ++r)
      for (int64_t c = 0; c < in; ++c) p.push_back(named_value(name, c, r));
  };
  const auto layers = [&](const std::function<void(const std::string&)>& one) { one("h.0."), one("h.1."); };
  plain("wte.weight", 5, 4);
  p.resize(p.size() + (128 - 5) * 4, 0.0f);
  plain("wpe.weight", 3, 4);
  layers([&](const std::string& h) { plain(h + "ln_1.weight", 1, 4); });
  layers([&](const std::string& h) { plain(h + "ln_1.bias", 1, 4); });
  layers([&](const std::string& h) { turned(h + "attn.c_attn.weight", 12, 4); });
  layers([&](const std::string& h) { plain(h + "attn.c_attn.bias", 1, 12); });
  layers([&](const std::string& h) { turned(h + "attn.c_proj.weight", 4, 4); });
  layers([&](const std::string& h) { plain(h + "attn.c_proj.bias", 1, 4); });
  layers([&](const std::string& h) { plain(h + "ln_2.weight", 1, 4); });
  layers([&](const std::string& h) { plain(h + "ln_2.bias", 1, 4); });
  layers([&](const std::string& h) { turned(h + "mlp.c_fc.weight", 16, 4); });
  layers([&](const std::string& h) { plain(h + "mlp.c_fc.bias", 1, 16); });
  layers([&](const std::string& h) { turned(h + "mlp.c_proj.weight", 4, 16); });
  layers([&](const std::string& h) { plain(h + "mlp.c_proj.bias", 1, 4); });
  plain("ln_f.weight", 1, 4);
  plain("ln_f.bias", 1, 4);
  return p;
}

TEST(HuggingFaceWeights, every_value_lands_where_llmc_keeps_it) {
  for (const char* prefix : {"", "transformer."}) {
    SCOPED_TRACE(prefix);
    const ImportedWeights w = import_named(named_tensors(prefix));
    EXPECT_EQ(w.config, named_config());
    EXPECT_EQ(w.parameters, expected_parameters());
    EXPECT_FALSE(w.tied_head);
    EXPECT_THAT(w.ignored, ::testing::IsEmpty());
  }
}

TEST(HuggingFaceWeights, the_checkpoint_has_llmcs_bytes) {
  TemporaryFolder folder;
  const ImportedWeights w = import_named(named_tensors());
  std::vector<int32_t> header(256);
  const std::vector<int32_t> shape{20240326, 3, 3, 5, 2, 2, 4, 128};
  std::copy(shape.begin(), shape.end(), header.begin());
  auto expected = bytes_of(header);
  const auto values = bytes_of(expected_parameters());
  expected.insert(expected.end(), values.begin(), values.end());
  save_checkpoint(folder / "c", w.config, w.parameters);
  EXPECT_TRUE(read_bytes(folder / "c") == expected);

  // bf16: every value here is a whole number below 2^15, rounded by hand to 8 significant bits, ties to even.
  header[1] = 5;
  expected = bytes_of(header);
  for (const float value : expected_parameters()) {
    uint32_t n = static_cast<uint32_t>(value), step = 1;
    while (n / step >= 256) step *= 2;
    const uint32_t down = n / step, rest = n % step;
    n = (down + (2 * rest > step || (2 * rest == step && down % 2 == 1) ? 1 : 0)) * step;
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(n));
    ASSERT_EQ(bits & 0xffffu, 0u);
    expected.push_back(static_cast<std::byte>(bits >> 16));
    expected.push_back(static_cast<std::byte>(bits >> 24));
  }
  save_checkpoint(folder / "c", w.config, w.parameters, CheckpointPrecision::bf16);
  EXPECT_TRUE(read_bytes(folder / "c") == expected);
}

TEST(HuggingFaceWeights, f16_and_bf16_files_are_widened) {
  RawTensors f16 = named_tensors(), bf16 = named_tensors();
  for (RawTensors* t : {&f16, &bf16}) {
    for (auto& [name, tensor] : *t) {
      tensor.dtype = t == &f16 ? "F16" : "BF16";
      tensor.bytes = bytes_of(std::vector<uint16_t>(tensor.bytes.size() / 4, t == &f16 ? 0x3e00 : 0x3fc0));  // 1.5
    }
  }
  for (const RawTensors& t : {f16, bf16}) {
    const auto p = import_named(t).parameters;
    EXPECT_EQ(std::count(p.begin(), p.end(), 1.5f), 5 * 4 + 3 * 4 + 2 * (6 * 4 + 48 + 12 + 16 + 64 + 16 + 64) + 8);
    EXPECT_EQ(std::count(p.begin(), p.end(), 0.0f), 123 * 4);
  }
}

TEST(HuggingFaceWeights, heads_are_64_channels_wide_unless_said) {
  EXPECT_INPUT_ERROR(import_weights(file_of(named_tensors()), "w"), "w: ", "number of heads is not in the file", "--heads N");
  EXPECT_INPUT_ERROR(import_weights(file_of(named_tensors()), "w", 3), "w: 3 heads do not divide 4 channels");
  EXPECT_INPUT_ERROR(import_weights(file_of(named_tensors()), "w", 0), "w: heads is 0");
  TemporaryFolder folder;
  const ModelConfig config{2, 3, 128, 1, 2, 128};
  export_weights(folder / "m", {config, CheckpointPrecision::fp32, init_parameters(config, 1)});
  EXPECT_EQ(import_weights(read_bytes(folder / "m"), "m").config, config);
}

TEST(HuggingFaceWeights, buffers_are_ignored_and_a_tied_head_is_no_tensor) {
  RawTensors t = named_tensors("transformer.");
  t["transformer.h.0.attn.bias"] = {"F32", {1, 1, 3, 3}, std::vector<std::byte>(36)};
  t["transformer.h.1.attn.bias"] = {"BOOL", {1, 1, 3, 3}, std::vector<std::byte>(9)};
  t["transformer.h.1.attn.masked_bias"] = {"F32", {}, std::vector<std::byte>(4)};
  t["lm_head.weight"] = t["transformer.wte.weight"];
  const ImportedWeights w = import_named(t);
  EXPECT_EQ(w.parameters, expected_parameters());
  EXPECT_TRUE(w.tied_head);
  EXPECT_THAT(w.ignored, ::testing::ElementsAre("h.0.attn.bias", "h.1.attn.bias", "h.1.attn.masked_bias"));
  t["lm_head.weight"].bytes[79] ^= std::byte{0x80};
  EXPECT_INPUT_ERROR(import_named(t), "w: tensor lm_head.weight differs from wte.weight");
  t["lm_head.weight"] = t["transformer.wpe.weight"];
  EXPECT_INPUT_ERROR(import_named(t), "w: tensor lm_head.weight has shape [3, 4], expected [5, 4]");
}

TEST(HuggingFaceWeights, what_is_wrong_is_named) {
  const RawTensors good = named_tensors();
  const auto damaged = [&](const std::function<void(RawTensors&)>& change) {
    RawTensors t = good;
    change(t);
    return t;
  };
  EXPECT_INPUT_ERROR(import_named({}), "has no tensor wte.weight", "not the weights of a GPT-2");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { t.erase("wpe.weight"); })), "has no tensor wpe.weight");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { t.erase("h.1.mlp.c_fc.bias"); })), "missing: h.1.mlp.c_fc.bias (with 2 layers)");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { std::erase_if(t, [](auto& i) { return i.first.starts_with("h.0."); }); })),
                     "missing: h.0.attn.c_attn.bias,", "and 7 more");
  const std::string five = "not in a GPT-2: x.0, x.1, x.2, x.3, x.4";
  for (const int strangers : {5, 6}) {
    const RawTensors with = damaged([&](auto& t) {
      for (int i = 0; i < strangers; ++i) t["x." + std::to_string(i)] = t["ln_f.bias"];
    });
    try {
      import_named(with);
      ADD_FAILURE() << strangers << " strangers were accepted";
    } catch (const stepscope::InputError& e) {
      const std::string text = e.what();
      EXPECT_THAT(text, ::testing::HasSubstr(five));
      EXPECT_EQ(text.find("and 1 more") != std::string::npos, strangers == 6) << text;
      EXPECT_EQ(text.find("more") != std::string::npos, strangers == 6) << text;
    }
  }
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { std::erase_if(t, [](auto& i) { return i.first.starts_with("h."); }); })),
                     "no layers");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { t["score.weight"] = t["wpe.weight"]; })), "not in a GPT-2: score.weight");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { t["h.999999.ln_1.bias"] = t["ln_f.bias"]; })),
                     "not in a GPT-2: h.999999.ln_1.bias");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { t["h.01.attn.bias"] = t["ln_f.bias"]; })), "not in a GPT-2: h.01.attn.bias");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { t["transformer.ln_f.bias"] = t["ln_f.bias"]; })),
                     "tensor ln_f.bias is there with and without the prefix transformer.");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { t["h.0.mlp.c_fc.bias"] = t["ln_f.bias"]; })),
                     "tensor h.0.mlp.c_fc.bias has shape [4], expected [16]");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) {
                       t["h.0.attn.c_attn.weight"].shape = {12, 4};
                     })),
                     "tensor h.0.attn.c_attn.weight has shape [12, 4], expected [4, 12]: it is stored as nn.Linear has it");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { t["wte.weight"].shape = {20}; })), "tensor wte.weight has shape [20]", "two");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { t["ln_f.bias"].dtype = "I32"; })), "tensor ln_f.bias is I32, expected F32");
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { t["wte.weight"] = {"F32", {5, 0}, {}}; })), "channels is 0");
  // A shape of nothing, which costs no byte in the file: must not become an allocation.
  EXPECT_INPUT_ERROR(import_named(damaged([](auto& t) { t["wpe.weight"] = {"F32", {0, 4}, {}}; })), "max_seq_len is 0");
}

TEST(HuggingFaceWeights, a_file_in_the_librarys_form_comes_back_byte_for_byte) {
  TemporaryFolder folder;
  RawTensors bf16 = named_tensors();
  // Every kind of bits, NaN among them.
  uint16_t bits = 0;
  for (auto& [name, tensor] : bf16) {
    std::vector<uint16_t> values(tensor.bytes.size() / 4);
    for (uint16_t& v : values) v = static_cast<uint16_t>(bits += 97);
    tensor.dtype = "BF16";
    tensor.bytes = bytes_of(values);
  }
  for (const auto& [tensors, precision] :
       {std::pair{named_tensors(), CheckpointPrecision::fp32}, std::pair{bf16, CheckpointPrecision::bf16}}) {
    const auto file = file_of(tensors);
    const ImportedWeights w = import_weights(file, "w", 2);
    export_weights(folder / "back", {w.config, precision, w.parameters});
    EXPECT_TRUE(read_bytes(folder / "back") == file);
  }
}

TEST(HuggingFaceWeights, a_checkpoint_comes_back_byte_for_byte) {
  TemporaryFolder folder;
  for (const auto precision : {CheckpointPrecision::fp32, CheckpointPrecision::bf16}) {
    save_checkpoint(folder / "c", named_config(), init_parameters(named_config(), 7), precision);
    export_weights(folder / "m", load_checkpoint(folder / "c"));
    const ImportedWeights w = import_weights(read_bytes(folder / "m"), "m", 2);
    save_checkpoint(folder / "back", w.config, w.parameters, precision);
    EXPECT_TRUE(read_bytes(folder / "back") == read_bytes(folder / "c"));
  }
}

TEST(HuggingFaceWeights, padding_that_says_something_is_not_dropped_in_silence) {
  TemporaryFolder folder;
  Checkpoint c{named_config(), CheckpointPrecision::fp32, init_parameters(named_config(), 7)};
  c.parameters[5 * 4 + 6] = 1e-9f;
  EXPECT_INPUT_ERROR(export_weights(folder / "m", c), "row 6 of wte pads the vocabulary of 5 and is not zero");
  EXPECT_THAT(testing::names_in(folder.path()), ::testing::IsEmpty());
}

// True: refused. Anything but an InputError ends the test.
bool refuses(const std::vector<std::byte>& file) {
  try {
    import_weights(file, "w", 2);
    return false;
  } catch (const stepscope::InputError& e) {
    EXPECT_THAT(std::string(e.what()), ::testing::StartsWith("w: "));
    return true;
  }
}

TEST(DamagedHuggingFaceWeights, every_cut_is_refused) {
  const auto good = file_of(named_tensors());
  ASSERT_FALSE(refuses(good));
  for (size_t length = 0; length < good.size(); ++length)
    ASSERT_TRUE(refuses({good.begin(), good.begin() + static_cast<ptrdiff_t>(length)})) << length << " of " << good.size() << " bytes";
  auto longer = good;
  longer.resize(good.size() + 8);
  EXPECT_TRUE(refuses(longer));
}

TEST(DamagedHuggingFaceWeights, flipped_bytes_are_values_or_refused) {
  const auto good = file_of(named_tensors());
  uint64_t length;
  std::memcpy(&length, good.data(), 8);
  size_t refused = 0, tried = 0;
  for (size_t at = 0; at < 8 + length; ++at) {
    for (const int flip : {0x01, 0x02, 0x10, 0x80, 0xff}) {
      auto bad = good;
      bad[at] ^= static_cast<std::byte>(flip);
      refused += refuses(bad);
      ++tried;
    }
  }
  // What may pass: a byte of the metadata's words, and a space at the end that becomes another white space.
  EXPECT_GT(refused, tried * 97 / 100) << refused << " of " << tried;
  for (size_t at = 8 + length; at < good.size(); ++at) {
    auto other = good;
    other[at] ^= std::byte{0xff};
    ASSERT_FALSE(refuses(other)) << at;
  }
}

// Numbers replaced, bytes swapped, pieces moved: what a flip does not reach. The seed is fixed, so that a failure comes again.
TEST(DamagedHuggingFaceWeights, mixed_up_headers_are_refused_or_harmless) {
  const auto good = file_of(named_tensors("transformer."));
  uint64_t length, state = 1;
  std::memcpy(&length, good.data(), 8);
  const auto next = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>((state >> 33) % below);
  };
  const std::string alphabet = "0123456789,:[]{}\"-eE.FBU8h\\ ";
  size_t refused = 0;
  constexpr size_t kTries = 8000;
  for (size_t i = 0; i < kTries; ++i) {
    auto bad = good;
    for (size_t change = 1 + next(3); change > 0; --change) {
      const size_t at = 8 + next(length);
      switch (next(3)) {
        case 0:
          bad[at] = static_cast<std::byte>(alphabet[next(alphabet.size())]);
          break;
        case 1:
          std::swap(bad[at], bad[8 + next(length)]);
          break;
        default:
          std::copy_n(good.begin() + static_cast<ptrdiff_t>(8 + next(length - 16)), 16,
                      bad.begin() + static_cast<ptrdiff_t>(std::min<size_t>(at, 8 + length - 16)));
      }
    }
    refused += refuses(bad);
  }
  EXPECT_GT(refused, kTries / 2);
}

}  // namespace
}  // namespace gpt2

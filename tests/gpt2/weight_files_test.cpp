// A model in one file, in several with an index, in a folder with config.json: the same model each way, and what is wrong is named.
#include "gpt2/data/weight_files.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "gpt2/data/hugging_face_weights.h"
#include "tests/gpt2/safetensors_file.h"

namespace gpt2 {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;
using testing::file_of;
using testing::named_config;
using testing::named_tensors;
using testing::RawTensors;
using testing::read_bytes;
using testing::TemporaryFolder;

void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
void write(const fs::path& path, const std::vector<std::byte>& bytes) {
  write(path, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

json gpt2_config() { return {{"model_type", "gpt2"}, {"n_layer", 2}, {"n_head", 2}, {"n_embd", 4}, {"n_positions", 3}, {"vocab_size", 5}}; }

// A folder of save_pretrained: `tensors` dealt out to `shards` files in turn.
class Sharded {
 public:
  Sharded(const RawTensors& tensors, size_t shards) : parts_(shards) {
    size_t at = 0, bytes = 0;
    for (const auto& [name, tensor] : tensors) {
      const size_t shard = at++ % shards;
      parts_[shard][name] = tensor;
      index_["weight_map"][name] = name_of(shard);
      bytes += tensor.bytes.size();
    }
    index_["metadata"] = {{"total_size", bytes}};
  }
  std::string name_of(size_t shard) const { return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, parts_.size()); }
  RawTensors& part(size_t shard) { return parts_[shard]; }
  json& index() { return index_; }
  json& config() { return config_; }
  const fs::path& write_in(const fs::path& folder) const {
    for (size_t i = 0; i < parts_.size(); ++i) write(folder / name_of(i), file_of(parts_[i]));
    write(folder / "model.safetensors.index.json", index_.dump(2));
    if (!config_.is_null()) write(folder / "config.json", config_.dump(2));
    return folder;
  }

 private:
  std::vector<RawTensors> parts_;
  json index_, config_ = gpt2_config();
};

std::vector<std::byte> checkpoint_bytes(const fs::path& weights, const fs::path& folder, std::optional<int64_t> heads = {}) {
  const ImportedWeights w = import_weights(open_weights(weights), heads);
  save_checkpoint(folder / "c", w.config, w.parameters);
  return read_bytes(folder / "c");
}

TEST(WeightFiles, however_a_model_is_split_the_checkpoint_has_the_same_bytes) {
  for (const char* prefix : {"", "transformer."}) {
    const TemporaryFolder folder;
    const RawTensors tensors = named_tensors(prefix);
    write(folder / "m.safetensors", file_of(tensors));
    const auto expected = checkpoint_bytes(folder / "m.safetensors", folder.path(), 2);
    for (const size_t shards : {size_t{1}, size_t{2}, size_t{3}, tensors.size()}) {
      SCOPED_TRACE(fmt::format("{} shards, prefix '{}'", shards, prefix));
      const TemporaryFolder split;
      Sharded(tensors, shards).write_in(split.path());
      EXPECT_TRUE(checkpoint_bytes(split.path(), folder.path()) == expected);
      EXPECT_TRUE(checkpoint_bytes(split / "model.safetensors.index.json", folder.path()) == expected);
    }
    const TemporaryFolder single;
    write(single / "model.safetensors", file_of(tensors));
    write(single / "config.json", gpt2_config().dump());
    EXPECT_TRUE(checkpoint_bytes(single.path(), folder.path()) == expected);
  }
}

TEST(WeightFiles, a_head_in_another_shard_than_its_table_is_still_compared) {
  const TemporaryFolder folder;
  RawTensors tensors = named_tensors("transformer.");
  tensors["lm_head.weight"] = tensors["transformer.wte.weight"];
  EXPECT_TRUE(import_weights(open_weights(Sharded(tensors, 2).write_in(folder.path()))).tied_head);
  tensors["lm_head.weight"].bytes[3] ^= std::byte{1};
  EXPECT_INPUT_ERROR(import_weights(open_weights(Sharded(tensors, 2).write_in(folder.path()))),
                     "model-00001-of-00002.safetensors: ", "tensor lm_head.weight differs from wte.weight");
}

TEST(WeightFiles, index_and_shards_that_disagree_are_named) {
  const auto refused = [](const std::function<void(Sharded&)>& change, const std::string& first, const std::string& second = "") {
    const TemporaryFolder folder;
    Sharded model(named_tensors(), 3);
    change(model);
    model.write_in(folder.path());
    EXPECT_INPUT_ERROR(import_weights(open_weights(folder.path())), "model.safetensors.index.json: ", first.c_str(), second.c_str());
  };
  refused([](Sharded& m) { m.part(1)["wpe.weight"] = m.part(2)["wpe.weight"] = named_tensors()["wpe.weight"]; },
          "tensor wpe.weight is in model-00002-of-00003.safetensors and in model-00003-of-00003.safetensors", "expected in one of them");
  refused([](Sharded& m) { m.part(0).erase("h.0.attn.c_attn.bias"); },
          "weight_map places tensor h.0.attn.c_attn.bias in model-00001-of-00003.safetensors, which does not hold it");
  refused(
      [](Sharded& m) {
        m.part(1)["h.0.attn.c_attn.bias"] = m.part(0)["h.0.attn.c_attn.bias"];
        m.part(0).erase("h.0.attn.c_attn.bias");
      },
      "places tensor h.0.attn.c_attn.bias in model-00001-of-00003.safetensors, but it is in model-00002-of-00003.safetensors");
  refused([](Sharded& m) { m.index()["weight_map"].erase("ln_f.bias"); }, "weight_map lacks tensor ln_f.bias, which model-0000");
  // A shard of a save in another type: every tensor is there, with its shape.
  refused(
      [](Sharded& m) {
        for (auto& [name, tensor] : m.part(2)) {
          tensor.dtype = "BF16";
          tensor.bytes.resize(tensor.bytes.size() / 2);
        }
      },
      "metadata.total_size is ", "the bytes of all tensors: the shards are not of one model");
  refused([](Sharded& m) { m.index()["metadata"]["total_size"] = "1 GB"; }, "metadata.total_size is \"1 GB\", expected a number of bytes");
  refused([](Sharded& m) { m.index().erase("weight_map"); }, "no \"weight_map\", expected an object with the file of every tensor");
  refused([](Sharded& m) { m.index()["weight_map"] = json::array(); }, "\"weight_map\" is []");
  refused([](Sharded& m) { m.index()["weight_map"] = json::object(); }, "\"weight_map\" is {}");
  for (const json& place : {json(7), json("../other.safetensors"), json("/etc/passwd"), json(".."), json("")})
    refused([&](Sharded& m) { m.index()["weight_map"]["ln_f.bias"] = place; },
            "places tensor ln_f.bias in " + place.dump() + ", expected the name of a file beside it");
}

TEST(WeightFiles, an_index_without_a_total_or_with_an_older_one_is_read) {
  const TemporaryFolder folder;
  Sharded model(named_tensors(), 2);
  const auto bytes = model.index()["metadata"]["total_size"].get<int64_t>();
  model.index()["metadata"]["total_size"] = static_cast<double>(bytes);
  EXPECT_EQ(import_weights(open_weights(model.write_in(folder.path()))).config, named_config());
  model.index().erase("metadata");
  EXPECT_EQ(import_weights(open_weights(model.write_in(folder.path()))).config, named_config());
}

TEST(WeightFiles, a_missing_shard_is_named_with_what_it_should_hold) {
  const TemporaryFolder folder;
  const Sharded model(named_tensors(), 7);
  model.write_in(folder.path());
  fs::remove(folder / model.name_of(3));
  EXPECT_INPUT_ERROR(open_weights(folder.path()), "model.safetensors.index.json: weight_map places 4 tensors in ",
                     "model-00004-of-00007.safetensors, which is not there (the first is h.0.attn.c_proj.weight)");
}

TEST(WeightFiles, what_is_wrong_within_a_shard_names_the_shard) {
  const auto refused = [](const std::function<void(Sharded&)>& change, const std::string& first, const std::string& second = "") {
    const TemporaryFolder folder;
    Sharded model(named_tensors(), 4);
    change(model);
    model.index().erase("metadata");
    model.write_in(folder.path());
    EXPECT_INPUT_ERROR(import_weights(open_weights(folder.path())), first.c_str(), second.c_str());
  };
  // In the order of their names h.0.attn.c_attn.weight is the second tensor, wpe.weight and wte.weight the last.
  refused(
      [](Sharded& m) {
        m.part(1)["h.0.attn.c_attn.weight"].shape = {12, 4};
      },
      "model-00002-of-00004.safetensors: ", "tensor h.0.attn.c_attn.weight has shape [12, 4], expected [4, 12]");
  refused([](Sharded& m) { m.part(1)["h.0.attn.c_attn.weight"].dtype = "I32"; },
          "model-00002-of-00004.safetensors: ", "tensor h.0.attn.c_attn.weight is I32");
  refused([](Sharded& m) { m.part(1)["h.0.attn.c_attn.weight"].bytes.resize(4); }, "model-00002-of-00004.safetensors: ");
  refused([](Sharded& m) { m.part(2)["wpe.weight"].shape = {12}; }, "model-00003-of-00004.safetensors: ", "wpe.weight has shape [12]");
  refused([](Sharded& m) { m.part(1).erase("h.0.attn.c_attn.weight"), m.index()["weight_map"].erase("h.0.attn.c_attn.weight"); },
          "model.safetensors.index.json: missing: h.0.attn.c_attn.weight");
}

TEST(WeightFiles, one_shard_by_itself_says_what_to_name) {
  const TemporaryFolder folder;
  RawTensors some = named_tensors();
  some.erase("ln_f.bias");
  write(folder / "model-00001-of-00002.safetensors", file_of(some));
  EXPECT_INPUT_ERROR(import_weights(open_weights(folder / "model-00001-of-00002.safetensors"), 2), "missing: ln_f.bias",
                     "it is one of several files: name their folder or their model.safetensors.index.json");
  some.erase("wte.weight");
  write(folder / "model-00002-of-00002.safetensors", file_of(some));
  EXPECT_INPUT_ERROR(import_weights(open_weights(folder / "model-00002-of-00002.safetensors"), 2), "has no tensor wte.weight",
                     "it is one of several files: name their folder");
  write(folder / "m.safetensors", file_of(some));
  try {
    import_weights(open_weights(folder / "m.safetensors"), 2);
    ADD_FAILURE();
  } catch (const stepscope::InputError& e) {
    EXPECT_THAT(e.what(), ::testing::Not(::testing::HasSubstr("several files")));
  }
}

TEST(WeightFiles, a_folder_without_weights_says_what_is_missing) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(open_weights(folder.path()), "the folder has neither model.safetensors nor model.safetensors.index.json");
  write(folder / "pytorch_model.bin", std::string("PK"));
  EXPECT_INPUT_ERROR(open_weights(folder.path()), "neither", "it has pytorch_model.bin, which save_pretrained of transformers writes anew");
  Sharded(named_tensors(), 2).write_in(folder.path());
  EXPECT_EQ(import_weights(open_weights(folder.path())).config, named_config());
  write(folder / "model.safetensors", file_of(named_tensors()));
  EXPECT_INPUT_ERROR(open_weights(folder.path()), "holds model.safetensors and model.safetensors.index.json, expected one of the two");
  EXPECT_EQ(import_weights(open_weights(folder / "model.safetensors"), 2).config, named_config());
}

TEST(WeightFiles, a_pointer_of_git_lfs_is_called_so) {
  const TemporaryFolder folder;
  write(folder / "m.safetensors", std::string("version https://git-lfs.github.com/spec/v1\noid sha256:248dfc\nsize 548105171\n"));
  EXPECT_INPUT_ERROR(open_weights(folder / "m.safetensors"), "m.safetensors: a pointer of Git LFS", "`git lfs pull` fetches it");
}

TEST(HuggingFaceConfig, heads_come_from_it_and_another_shape_is_refused) {
  const auto imported = [](const std::function<void(json&)>& change, std::optional<int64_t> heads = {}) {
    const TemporaryFolder folder;
    json config = gpt2_config();
    change(config);
    write(folder / "model.safetensors", file_of(named_tensors()));
    write(folder / "config.json", config.dump());
    return import_weights(open_weights(folder.path()), heads).config;
  };
  const auto set = [](const char* key, const json& value) { return [=](json& j) { j[key] = value; }; };
  EXPECT_EQ(imported(set("n_head", 4)).heads, 4);
  EXPECT_EQ(imported([](json&) {}).heads, 2);
  EXPECT_EQ(imported([](json&) {}, 2).heads, 2);
  EXPECT_INPUT_ERROR(imported([](json&) {}, 4), "config.json: \"n_head\" is 2, expected 4, as the weights and --heads say");
  // What transformers takes without it: not the 64 channels of a file alone.
  EXPECT_INPUT_ERROR(imported([](json& j) { j.erase("n_head"); }), "config.json: 12 heads do not divide 4 channels");
  for (const char* key : {"n_layer", "n_embd", "n_positions", "vocab_size"}) {
    const std::string said = fmt::format("config.json: \"{}\" is 77, expected ", key);
    EXPECT_INPUT_ERROR(imported(set(key, 77)), said.c_str(), "as the weights say");
    EXPECT_EQ(imported([&](json& j) { j.erase(key); }), named_config());
  }
}

// `--import m/model.safetensors` guessed the heads that m/config.json has, and `--import m` did not.
TEST(HuggingFaceConfig, model_safetensors_by_its_name_has_the_heads_of_the_config_beside_it) {
  const TemporaryFolder folder;
  json config = gpt2_config();
  config["n_head"] = 4;
  write(folder / "config.json", config.dump());
  write(folder / "model.safetensors", file_of(named_tensors()));
  EXPECT_EQ(import_weights(open_weights(folder / "model.safetensors")).config.heads, 4);
  EXPECT_INPUT_ERROR(import_weights(open_weights(folder / "model.safetensors"), 2), "config.json: \"n_head\" is 4, expected 2");
  write(folder / "other.safetensors", file_of(named_tensors()));
  EXPECT_EQ(import_weights(open_weights(folder / "other.safetensors"), 2).config.heads, 2);
}

TEST(HuggingFaceConfig, the_other_names_that_transformers_reads_say_the_same_and_nothing_else) {
  const TemporaryFolder folder;
  write(folder / "model.safetensors", file_of(named_tensors()));
  const auto imported = [&](const json& config) {
    write(folder / "config.json", config.dump());
    return import_weights(open_weights(folder.path())).config;
  };
  const std::pair<const char*, const char*> names[] = {{"n_head", "num_attention_heads"},
                                                       {"n_layer", "num_hidden_layers"},
                                                       {"n_embd", "hidden_size"},
                                                       {"n_positions", "max_position_embeddings"}};
  json other = gpt2_config();
  for (const auto& [key, alias] : names) {
    json both = gpt2_config();
    both[alias] = both[key];
    EXPECT_EQ(imported(both), named_config());
    both[alias] = 77;
    const std::string said = fmt::format("config.json: \"{}\" is {} and \"{}\" is 77, expected one number", key, both[key].dump(), alias);
    EXPECT_INPUT_ERROR(imported(both), said.c_str());
    other[alias] = other[key];
    other.erase(key);
  }
  other["num_attention_heads"] = 4;  // neither the 2 of the model nor the 12 of a config that says nothing
  EXPECT_EQ(imported(other).heads, 4);
  other["num_attention_heads"] = nullptr;
  EXPECT_INPUT_ERROR(imported(other), "\"num_attention_heads\" is null, expected a whole number");
  other["num_attention_heads"] = 2;
  other["hidden_size"] = 77;
  EXPECT_INPUT_ERROR(imported(other), "config.json: \"hidden_size\" is 77, expected 4, as the weights say");
}

TEST(HuggingFaceConfig, what_our_trainers_compute_otherwise_is_refused) {
  const auto refused = [](const json& changes, const std::string& first, const std::string& second = "") {
    json config = gpt2_config();
    config.update(changes);
    EXPECT_INPUT_ERROR(read_hugging_face_config(config.dump(), "config.json"), first.c_str(), second.c_str());
  };
  refused({{"model_type", "llama"}}, "config.json: \"model_type\" is \"llama\", expected \"gpt2\"");
  refused({{"model_type", nullptr}}, "\"model_type\" is null");
  refused({{"activation_function", "gelu"}}, "\"activation_function\" is \"gelu\", expected \"gelu_new\" or ");
  refused({{"layer_norm_epsilon", 1e-6}}, "\"layer_norm_epsilon\" is 1e-06, expected 1e-05");
  refused({{"scale_attn_weights", false}}, "\"scale_attn_weights\" is false, expected true");
  refused({{"scale_attn_by_inverse_layer_idx", true}}, "\"scale_attn_by_inverse_layer_idx\" is true, expected false");
  refused({{"tie_word_embeddings", "yes"}}, "\"tie_word_embeddings\" is \"yes\"");
  for (const json& number : {json(0), json(-1), json(2.5), json("2"), json(nullptr), json(uint64_t{1} << 63)})
    refused({{"n_head", number}}, "\"n_head\" is " + number.dump() + ", expected a whole number of at least 1");
  EXPECT_INPUT_ERROR(read_hugging_face_config("{}", "config.json"), "config.json: no \"model_type\", expected it and \"gpt2\" in it");
  EXPECT_INPUT_ERROR(read_hugging_face_config("{\"a\": 1,\n \"b\" 2}", "config.json"), "config.json: line 2, column ");
  EXPECT_INPUT_ERROR(read_hugging_face_config("", "config.json"), "config.json: the file is empty");
  json names = gpt2_config();
  for (const char* tanh_form : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}) {
    names["activation_function"] = tanh_form;
    EXPECT_EQ(read_hugging_face_config(names.dump(), "c").heads, 2);
  }
}

TEST(HuggingFaceConfig, a_head_that_is_not_tied_must_be_there_and_equal) {
  const TemporaryFolder folder;
  RawTensors tensors = named_tensors("transformer.");
  json config = gpt2_config();
  config["tie_word_embeddings"] = false;
  write(folder / "config.json", config.dump());
  write(folder / "model.safetensors", file_of(tensors));
  EXPECT_INPUT_ERROR(import_weights(open_weights(folder.path())), "model.safetensors: has no tensor lm_head.weight",
                     "\"tie_word_embeddings\" is false");
  tensors["lm_head.weight"] = tensors["transformer.wte.weight"];
  write(folder / "model.safetensors", file_of(tensors));
  EXPECT_TRUE(import_weights(open_weights(folder.path())).tied_head);
}

// A model that was imported with a head of its own, equal to its table, came back to its folder without one.
TEST(ExportModel, a_folder_whose_config_wants_a_head_of_its_own_is_refused_and_stays) {
  const TemporaryFolder folder;
  save_checkpoint(folder / "c", named_config(), init_parameters(named_config(), 7), CheckpointPrecision::fp32);
  json config = gpt2_config();
  config["tie_word_embeddings"] = false;
  write(folder / "config.json", config.dump());
  EXPECT_INPUT_ERROR(export_model(folder.path(), load_checkpoint(folder / "c")),
                     "config.json: \"tie_word_embeddings\" is false, expected true or another folder", "without lm_head.weight");
  EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors"));
}

TEST(ExportModel, the_folder_is_what_an_import_reads_and_gives_the_checkpoint_back) {
  for (const auto precision : {CheckpointPrecision::fp32, CheckpointPrecision::bf16}) {
    const TemporaryFolder folder;
    save_checkpoint(folder / "c", named_config(), init_parameters(named_config(), 7), precision);
    export_model(folder / "new" / "m", load_checkpoint(folder / "c"));
    const StoredWeights stored = open_weights(folder / "new" / "m");
    ASSERT_TRUE(stored.config);
    const ImportedWeights w = import_weights(stored);
    save_checkpoint(folder / "back", w.config, w.parameters, precision);
    EXPECT_TRUE(read_bytes(folder / "back") == read_bytes(folder / "c"));
    const auto text = read_bytes(folder / "new" / "m" / "config.json");
    const json j = json::parse(reinterpret_cast<const char*>(text.data()), reinterpret_cast<const char*>(text.data()) + text.size());
    const json expected{{"architectures", {"GPT2LMHeadModel"}},
                        {"model_type", "gpt2"},
                        {"n_layer", 2},
                        {"n_head", 2},
                        {"n_embd", 4},
                        {"n_positions", 3},
                        {"vocab_size", 5},
                        {"layer_norm_epsilon", 1e-5},
                        {"activation_function", "gelu_new"},
                        {"tie_word_embeddings", true},
                        {"attn_pdrop", 0.0},
                        {"resid_pdrop", 0.0},
                        {"embd_pdrop", 0.0},
                        {"eos_token_id", nullptr}};
    for (const auto& [key, value] : expected.items()) EXPECT_EQ(j.at(key), value) << key;
    EXPECT_EQ(j.at("torch_dtype"), precision == CheckpointPrecision::bf16 ? "bfloat16" : "float32");
  }
  EXPECT_EQ(json::parse(hugging_face_config_text(ModelConfig(), CheckpointPrecision::fp32)).at("eos_token_id"), 50256);
}

TEST(ExportModel, a_config_of_this_model_stays_and_one_of_another_stops_it) {
  const TemporaryFolder folder;
  const Checkpoint c{named_config(), CheckpointPrecision::fp32, init_parameters(named_config(), 7)};
  json mine = gpt2_config();
  mine["task_specific_params"] = "kept";
  write(folder / "config.json", mine.dump());
  export_model(folder.path(), c);
  const auto kept = read_bytes(folder / "config.json");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(kept.data()), kept.size()), mine.dump());
  fs::remove(folder / "model.safetensors");
  for (const char* key : {"n_layer", "n_head"}) {
    json other = gpt2_config();
    other[key] = 4;
    write(folder / "config.json", other.dump());
    const std::string said = fmt::format("config.json: \"{}\" is 4, expected 2, as the checkpoint says", key);
    EXPECT_INPUT_ERROR(export_model(folder.path(), c), said.c_str());
    EXPECT_FALSE(fs::exists(folder / "model.safetensors"));
  }
}

TEST(ExportModel, an_index_that_is_there_stops_it) {
  const TemporaryFolder folder;
  Sharded(named_tensors(), 2).write_in(folder.path());
  EXPECT_INPUT_ERROR(export_model(folder.path(), {named_config(), CheckpointPrecision::fp32, init_parameters(named_config(), 7)}),
                     "model.safetensors.index.json: ", "another folder");
}

TEST(ExportModel, nothing_is_made_for_a_checkpoint_that_has_no_place_in_the_file) {
  const TemporaryFolder folder;
  Checkpoint c{named_config(), CheckpointPrecision::fp32, init_parameters(named_config(), 7)};
  c.parameters[5 * 4] = 1;
  EXPECT_INPUT_ERROR(export_model(folder / "m", c), "row 5 of wte");
  EXPECT_FALSE(fs::exists(folder / "m"));
}

}  // namespace
}  // namespace gpt2

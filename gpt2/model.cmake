# The model without a precision (docs/architecture.md, rank 10).
if(STEPSCOPE_ICU)
  find_package(ICU COMPONENTS uc)
endif()
if(ICU_FOUND)
  set(unicode data/unicode_icu.cpp)
  set(icu ICU::uc)
else()
  message(STATUS "Without ICU (libicu-dev): `data` will not tokenize text")
  set(unicode data/unicode_absent.cpp)
endif()
stepscope_stage(gpt2_model RANK 10
  SOURCES
    distributed/bucket_plan.cpp distributed/bucket_size.cpp config.cpp tensor_table.cpp ops.cpp op_range.cpp work_model.cpp
    checkpoint.cpp training_state.cpp
    data/token_shards.cpp data/shard_set.cpp data/eval_set.cpp data/synthetic_tokens.cpp
    data/tokenizer.cpp data/safetensors.cpp data/weight_files.cpp data/hugging_face_config.cpp data/hugging_face_weights.cpp data/bpe.cpp data/documents.cpp data/json_lines.cpp data/pretokenizer.cpp ${unicode} sampling.cpp evaluation.cpp
    learning_rate.cpp outliers.cpp trainer_checks.cpp replicas.cpp train_loop.cpp run_json.cpp run_log.cpp
  LINKS base gpt2_distributed
  PUBLIC_LIBS fmt::fmt nlohmann_json::nlohmann_json
  PRIVATE_LIBS ${icu})
if(OpenMP_CXX_FOUND)
  target_link_libraries(gpt2_model PRIVATE OpenMP::OpenMP_CXX)
endif()

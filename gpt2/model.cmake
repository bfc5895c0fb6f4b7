# The model without a precision (docs/architecture.md, rank 10).
if(STEPSCOPE_ICU)
  find_package(ICU COMPONENTS uc)
endif()
if(ICU_FOUND)
  set(unicode unicode_icu.cpp)
  set(icu ICU::uc)
else()
  message(STATUS "Without ICU (libicu-dev): `data` will not tokenize text")
  set(unicode unicode_absent.cpp)
endif()
stepscope_stage(gpt2_model RANK 10
  SOURCES
    config.cpp tensor_table.cpp ops.cpp op_range.cpp work_model.cpp
    atomic_file.cpp mapped_file.cpp
    checkpoint.cpp training_state.cpp
    token_shards.cpp shard_set.cpp synthetic_tokens.cpp
    tokenizer.cpp bpe.cpp documents.cpp pretokenizer.cpp ${unicode} sampling.cpp
    learning_rate.cpp trainer_checks.cpp train_loop.cpp run_json.cpp sha256.cpp
  LINKS base
  PUBLIC_LIBS fmt::fmt nlohmann_json::nlohmann_json
  PRIVATE_LIBS ${icu})
if(OpenMP_CXX_FOUND)
  target_link_libraries(gpt2_model PRIVATE OpenMP::OpenMP_CXX)
endif()

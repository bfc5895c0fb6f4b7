# Included from gpt2/CMakeLists.txt when STEPSCOPE_CUDA: kernels that the GPU trainers share, one file per op, instantiated for the
# storage types that the trainers keep tensors in.
stepscope_stage(gpt2_ops RANK 15
  SOURCES
    ops/adamw.cu ops/adamw_blocks.cu ops/adamw_split.cu ops/attention_unfused.cu ops/classifier.cu ops/column_sums.cu ops/dout_dot_out.cu ops/elementwise.cu ops/encoder.cu
    ops/grad_norm.cu ops/arena_norm.cu ops/layernorm_forward.cu ops/layernorm_backward.cu
    ops/step_scalars.cpp ops/step_model.cpp ops/gpu_trainer.cpp ops/memory_plan.cpp ops/rank_plan.cpp ops/rank_work.cpp ops/gradient_exchange.cpp
  LINKS gpt2_model gpt2_cuda
  PUBLIC_LIBS CUDA::cudart
  PRIVATE_LIBS fmt::fmt)
stepscope_device_sources_together(gpt2_ops APART kThreads kRowsPerBlock)
# A variant without its case in a switch over its enum does not compile.
target_compile_options(gpt2_ops PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror=switch> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Werror=switch>)

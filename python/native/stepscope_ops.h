/* The ops of stepscope's trainers behind C functions, for callers that bring their own tensors (python/stepscope does).
 *
 * Rules for all functions
 * - Data pointers are device addresses of the current device, row-major, contiguous but where a pitch is given. Nothing is allocated but
 *   what a first call of attention=unfused keeps (a product engine with 64 MiB per device and stream). Nothing waits for the device.
 * - `variant`: a name of `stepscope train --list-variants`. A variant runs under its name or is refused; nothing falls back.
 * - `storage`: element type S of activations and weights, 0 = float32, 1 = bfloat16. `stream`: element type R of the residual stream and
 *   its gradient; (S,R) is (0,0), (1,1) or (1,0), where the residual stream is wider than the activations.
 * - `cuda_stream`: a cudaStream_t. Launches may be captured into a CUDA graph; exceptions are named.
 * - scratch: at least as many bytes as the function of the same name with `_scratch` says; 16-byte aligned; free when the stream has
 *   passed the call.
 * - Empty tensors (rows, n or B*T of 0) return 0 and launch nothing.
 * - Returns 0, or a code below; the sentence of the last failed call of this thread is stepscope_ops_last_error(). A call that returns 2
 *   launched nothing.
 * - Kernels fail late: a bad address is found by a later call of anybody.
 */
#ifndef STEPSCOPE_OPS_H_
#define STEPSCOPE_OPS_H_
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STEPSCOPE_OPS_ABI 2

enum stepscope_ops_code {
  STEPSCOPE_OPS_OK = 0,
  STEPSCOPE_OPS_FAILED = 1, /* a bug, or a CUDA error of an earlier launch */
  STEPSCOPE_OPS_INPUT = 2,  /* bad argument, or a variant that refuses this shape, type or alignment */
  STEPSCOPE_OPS_MACHINE = 3 /* this machine cannot: no device, no cuDNN, no memory */
};
enum stepscope_ops_type { STEPSCOPE_OPS_F32 = 0, STEPSCOPE_OPS_BF16 = 1 };

/* Of the library; a caller compares it with the STEPSCOPE_OPS_ABI that it was written for. */
int stepscope_ops_abi(void);
/* Sentence of this thread's last call that failed; "" before one did. Valid until the next call of this thread. */
const char* stepscope_ops_last_error(void);
/* JSON {"fp32": {"layernorm_forward": ["warp_per_row", ...], ...}, "mixed": {...}}: the slots that stand alone, their variants by storage
 * (fp32 is 0, mixed is 1), the default first. Valid until the process ends. */
const char* stepscope_ops_variants(void);

/* out (rows,C) S = (inp - mean) * rstd * weight + bias, eps 1e-5. inp (rows,C) R; weight, bias (C) S; mean, rstd (rows) float32 are
 * written. kept (rows,C) S: inp rounded to S for the backward; NULL unless R is wider than S. Slot layernorm_forward. */
int stepscope_ops_layernorm_forward(const char* variant, int storage, int stream, void* out, float* mean, float* rstd, void* kept,
                                    const void* inp, const void* weight, const void* bias, int64_t rows, int64_t C, void* cuda_stream);
/* dinp (rows,C) R, dweight, dbias (C) float32 are written. dout (rows,C) S; inp (rows,C) S: what the forward read, or its `kept`.
 * Slot layernorm_backward. */
int stepscope_ops_layernorm_backward(const char* variant, int storage, int stream, void* dinp, float* dweight, float* dbias,
                                     const void* dout, const void* inp, const float* mean, const float* rstd, const void* weight,
                                     int64_t rows, int64_t C, void* scratch, int64_t scratch_bytes, void* cuda_stream);
int stepscope_ops_layernorm_backward_scratch(const char* variant, int storage, int64_t rows, int64_t C, int64_t* bytes);

/* GELU in its tanh form on n elements of S. dinp may be dout. */
int stepscope_ops_gelu_forward(int storage, void* out, const void* inp, int64_t n, void* cuda_stream);
int stepscope_ops_gelu_backward(int storage, void* dinp, const void* dout, const void* inp, int64_t n, void* cuda_stream);

/* Mean over the rows whose target is not `ignored` of -log softmax(logits)[target], over the first V of Vp columns. logits (rows,Vp) S,
 * targets (rows) int64, loss (1) float32. A target outside [0,V) that is not `ignored` makes the loss NaN, as does a batch in which every
 * row is ignored. Slot classifier. scratch: stepscope_ops_cross_entropy_scratch. */
int stepscope_ops_cross_entropy_forward(const char* variant, int storage, float* loss, const void* logits, const int64_t* targets,
                                        int64_t rows, int64_t V, int64_t Vp, int64_t ignored, void* scratch, int64_t scratch_bytes,
                                        void* cuda_stream);
/* logits become their gradient, times *upstream (1, float32, read on the device): (softmax - onehot) * upstream / counted rows; zero in
 * rows that are ignored and in columns from V on; NaN in rows whose target is outside. */
int stepscope_ops_cross_entropy_backward(const char* variant, int storage, void* logits, const int64_t* targets, const float* upstream,
                                         int64_t rows, int64_t V, int64_t Vp, int64_t ignored, void* scratch, int64_t scratch_bytes,
                                         void* cuda_stream);
int stepscope_ops_cross_entropy_scratch(int64_t rows, int64_t* bytes);
/* The same without padding: variant kept_sum of slot classifier. logits (rows,V) S of any V are only read, rows `pitch` elements apart
 * (pitch >= V, and V where they are contiguous; what lies between is not read). kept (rows,2) float32 receives each row's largest logit
 * and the logarithm of its sum of exp(logit - largest), from which the backward needs one pass. gradient (rows,Vp) S is written whole and
 * must not be logits; Vp >= V, a multiple of 8 where products are to read it fast. NaN and ignored rows as above. */
int stepscope_ops_cross_entropy_kept_sum_forward(int storage, float* loss, float* kept, const void* logits, const int64_t* targets,
                                                 int64_t rows, int64_t V, int64_t pitch, int64_t ignored, void* scratch,
                                                 int64_t scratch_bytes, void* cuda_stream);
int stepscope_ops_cross_entropy_kept_sum_backward(int storage, void* gradient, const void* logits, const float* kept,
                                                  const int64_t* targets, const float* upstream, int64_t rows, int64_t V, int64_t pitch,
                                                  int64_t Vp, int64_t ignored, void* scratch, int64_t scratch_bytes, void* cuda_stream);

/* Causal attention of NH heads of C/NH channels, scores times 1/sqrt(C/NH). qkv (B,T,3C) S: q, k, v of each token side by side;
 * out (B,T,C) S; lse (B,NH,T) float32, natural logarithm. Slots attention_forward, attention_backward; any two of them mix.
 * The first call for a shape plans (host work, seconds with cuDNN), and unfused then allocates: not inside a capture. */
int stepscope_ops_attention_forward(const char* variant, int storage, void* out, float* lse, const void* qkv, int64_t B, int64_t T,
                                    int64_t C, int64_t NH, void* scratch, int64_t scratch_bytes, void* cuda_stream);
int stepscope_ops_attention_forward_scratch(const char* variant, int storage, int64_t B, int64_t T, int64_t C, int64_t NH, int64_t* bytes);
/* dqkv (B,T,3C) S is written. */
int stepscope_ops_attention_backward(const char* variant, int storage, void* dqkv, const void* dout, const void* qkv, const void* out,
                                     const float* lse, int64_t B, int64_t T, int64_t C, int64_t NH, void* scratch, int64_t scratch_bytes,
                                     void* cuda_stream);
int stepscope_ops_attention_backward_scratch(const char* variant, int storage, int64_t B, int64_t T, int64_t C, int64_t NH, int64_t* bytes);

/* The settings of one AdamW step, which the kernel reads from device memory so that a captured step can be given new ones: the host
 * fills stepscope_ops_adamw_settings_bytes() bytes anywhere and copies them. step counts from 1. */
int64_t stepscope_ops_adamw_settings_bytes(void);
int stepscope_ops_adamw_settings(void* host, double learning_rate, double beta1, double beta2, double eps, double weight_decay,
                                 int64_t step);
/* One update of `total` parameters in flat vectors, of which the first `decayed` get weight decay:
 *   g' = g * *clip_scale;  m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g'^2
 *   p -= learning_rate * ((m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + decay * p)
 * parameters, m, v, gradients: float32. storage 1: rounded (total) bfloat16 receives the parameters rounded to nearest even; storage 0:
 * rounded is NULL. clip_scale (1) float32. Slot adamw; `per_tensor` is refused, because its launches are those of GPT-2's 16 tensors. */
int stepscope_ops_adamw(const char* variant, int storage, void* rounded, float* parameters, float* m, float* v, const float* gradients,
                        int64_t decayed, int64_t total, const void* settings, const float* clip_scale, void* cuda_stream);

#ifdef __cplusplus
}
#endif
#endif

// SPDX-License-Identifier: Apache-2.0
/* Example 7: the training of 02_train on GPUs. Two ranks, one GPU each:
 *
 *   ddprun -n 2 07_cuda
 *
 * Parameters, gradients and data are in GPU memory, and all work of a rank goes to one stream. A gradient is marked when the
 * kernel that writes it has been launched, not when it has run: libddp gets the stream, and waits on the GPU, never on the
 * host.
 *
 * With more ranks than GPUs, ranks take turns on one GPU: good for a try on a small machine, useless for timings.
 * The kernels are the plainest that work. Read main(), then train_step().
 */
#include <cuda_runtime.h>
#include <ddp/ddp.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#ifndef DIGITS_CSV
#define DIGITS_CSV "data/digits.csv"
#endif

constexpr int kPixels = 64, kClasses = 10, kLayers = 3, kGlobalBatch = 64, kEpochs = 20;
constexpr int kWidths[kLayers + 1] = {kPixels, 128, 64, kClasses};

/* ---- Errors: one sentence that names the culprit. Print it and stop. ---- */

static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
static void check(cudaError_t error, const char *call) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s: %s: %s\n", call, cudaGetErrorName(error), cudaGetErrorString(error));
  exit(1);
}
#define CHECK(call) check((call), #call)

/* ---- Kernels. Arrays are row-major: value[sample][output], weight[output][input]. ---- */

__device__ int at_thread() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

/* The batch: sample b is number chosen[b] of the data. */
__global__ void gather(const float *pixels, const int64_t *chosen, float *batch, int count) {
  const int k = at_thread();
  if (k < count * kPixels) batch[k] = pixels[chosen[k / kPixels] * kPixels + k % kPixels];
}

__global__ void forward(const float *input, const float *weight, const float *bias, float *value, int batch, int in, int out,
                        bool relu) {
  const int k = at_thread(), b = k / out, o = k % out;
  if (b >= batch) return;
  float sum = bias[o];
  for (int i = 0; i < in; ++i) sum += weight[o * in + i] * input[b * in + i];
  value[k] = relu && sum < 0 ? 0 : sum;
}

/* Cross-entropy of softmax. One block, a thread for each sample. Adds to sums: loss, right answers, samples. */
__global__ void loss(const float *value, const int *labels, const int64_t *chosen, float *delta, double *sums, int batch) {
  __shared__ double losses[kGlobalBatch], right[kGlobalBatch];
  const int b = static_cast<int>(threadIdx.x), label = labels[chosen[b]];
  const float *mine = value + b * kClasses;
  int best = 0;
  for (int c = 1; c < kClasses; ++c) best = mine[c] > mine[best] ? c : best;
  double sum = 0;
  for (int c = 0; c < kClasses; ++c) sum += exp(static_cast<double>(mine[c] - mine[best]));
  for (int c = 0; c < kClasses; ++c) {
    const double share = exp(static_cast<double>(mine[c] - mine[best])) / sum;
    delta[b * kClasses + c] = (static_cast<float>(share) - (c == label ? 1.0F : 0.0F)) / static_cast<float>(batch);
  }
  losses[b] = log(sum) - static_cast<double>(mine[label] - mine[best]);
  right[b] = best == label;
  __syncthreads();
  if (b > 0) return;
  for (int k = 0; k < batch; ++k)
    sums[0] += losses[k], sums[1] += right[k], sums[2] += 1; /* in order: the same number every time */
}

/* Gradients of a layer, summed over the batch. They are written, not added, so they need not be cleared. */
__global__ void backward(const float *delta, const float *input, float *weight_grad, float *bias_grad, int batch, int in,
                         int out) {
  const int k = at_thread(), o = k / in, i = k % in;
  if (o >= out) return;
  float weight_sum = 0, bias_sum = 0;
  for (int b = 0; b < batch; ++b) {
    weight_sum += delta[b * out + o] * input[b * in + i];
    bias_sum += delta[b * out + o];
  }
  weight_grad[k] = weight_sum;
  if (i == 0) bias_grad[o] = bias_sum;
}

/* What the layer below must know. Its outputs are our inputs, and ReLU lets through only where these are positive. */
__global__ void pass_down(const float *delta, const float *weight, const float *input, float *below, int batch, int in,
                          int out) {
  const int k = at_thread(), b = k / in, i = k % in;
  if (b >= batch) return;
  float sum = 0;
  for (int o = 0; o < out; ++o) sum += weight[o * in + i] * delta[b * out + o];
  below[k] = input[k] > 0 ? sum : 0;
}

constexpr int kThreads = 128;
static int blocks(int threads) { return (threads + kThreads - 1) / kThreads; }

/* ---- Memory ---- */

template <class T>
static T *on_gpu(const std::vector<T> &values) {
  T *memory = nullptr;
  CHECK(cudaMalloc(&memory, values.size() * sizeof(T)));
  CHECK(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

struct Layer {
  int in, out;
  float *weight, *bias;           /* ours */
  float *weight_grad, *bias_grad; /* libddp's */
  int32_t weight_index, bias_index;
  float *input, *delta; /* of the whole batch; input is the value of the layer before */
};

struct Data {
  int64_t count;
  float *pixels;
  int *labels;
};

/* Every fifth line is for testing (part 0), the others for training (part 1). */
static void load_digits(const char *path, Data parts[2]) {
  FILE *file = fopen(path, "r");
  if (file == nullptr) {
    fprintf(stderr, "The data file %s cannot be opened: give its place as the first argument.\n", path);
    exit(1);
  }
  std::vector<float> pixels[2];
  std::vector<int> labels[2];
  int value = 0;
  for (int k = 0; fscanf(file, "%d,", &value) == 1; ++k) {
    const int part = k / (kPixels + 1) % 5 != 0;
    if (k % (kPixels + 1) < kPixels)
      pixels[part].push_back(static_cast<float>(value) / 16.0F);
    else
      labels[part].push_back(value);
  }
  fclose(file);
  for (int part = 0; part < 2; ++part)
    parts[part] = {static_cast<int64_t>(labels[part].size()), on_gpu(pixels[part]), on_gpu(labels[part])};
}

static void start_network(Layer net[kLayers], float *&values) {
  uint64_t state = 1;
  for (int l = 0; l < kLayers; ++l) {
    Layer &layer = net[l];
    layer.in = kWidths[l], layer.out = kWidths[l + 1];
    std::vector<float> weight(static_cast<size_t>(layer.in * layer.out));
    for (float &w : weight) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      w = std::sqrt(6.0F / static_cast<float>(layer.in)) * (static_cast<float>(state >> 40) / 8388608.0F - 1.0F);
    }
    layer.weight = on_gpu(weight);
    layer.bias = on_gpu(std::vector<float>(static_cast<size_t>(layer.out)));
    layer.input = on_gpu(std::vector<float>(static_cast<size_t>(kGlobalBatch * layer.in)));
    layer.delta = on_gpu(std::vector<float>(static_cast<size_t>(kGlobalBatch * layer.out)));
  }
  values = on_gpu(std::vector<float>(kGlobalBatch * kClasses));
}

/* ---- What belongs to libddp ---- */

/* A tensor is lent as on the CPU, plus where it is. */
static ddp_tensor tensor(float *data, int device, int rows, int columns) {
  return {data, DDP_F32, DDP_CUDA, device, columns == 0 ? 1 : 2, {rows, columns}};
}

/* Without a gradient of ours (NULL) libddp provides it, in GPU memory, where NCCL reduces it in place. To keep your own,
 * give a second tensor; then it is copied to a bucket and back by one kernel for each bucket. */
static ddp_model *lend_network(ddp_group *group, Layer net[kLayers], int device, cudaStream_t stream) {
  ddp_model *model = nullptr;
  CHECK(ddp_model_create(group, nullptr, &model));
  for (int l = 0; l < kLayers; ++l) {
    Layer &layer = net[l];
    const ddp_tensor weight = tensor(layer.weight, device, layer.out, layer.in),
                     bias = tensor(layer.bias, device, layer.out, 0);
    char name[32];
    snprintf(name, sizeof name, "layer%d.weight", l + 1);
    CHECK(ddp_model_add_parameter(model, name, &weight, nullptr, &layer.weight_index));
    snprintf(name, sizeof name, "layer%d.bias", l + 1);
    CHECK(ddp_model_add_parameter(model, name, &bias, nullptr, &layer.bias_index));
  }
  CHECK(ddp_model_commit(model, stream)); /* rank 0's weights go to all GPUs */
  for (int l = 0; l < kLayers; ++l) {
    ddp_tensor grad;
    CHECK(ddp_model_get_grad(model, net[l].weight_index, &grad));
    net[l].weight_grad = static_cast<float *>(grad.data);
    CHECK(ddp_model_get_grad(model, net[l].bias_index, &grad));
    net[l].bias_grad = static_cast<float *>(grad.data);
  }
  return model;
}

/* All that a rank has. */
struct Training {
  ddp_group *group;
  ddp_model *model;
  ddp_optimizer *optimizer;
  cudaStream_t stream;
  Layer net[kLayers];
  float *values; /* of the last layer, for the whole batch */
  double *sums;  /* loss, right answers, samples */
  Data data[2];  /* to test, to learn */
  ddp_sampler sampler[2];
  int64_t share[2]; /* this rank's number of samples */
  int64_t *chosen;  /* which ones, in the order of this epoch */
  int batch;        /* this rank's part of the global batch */
  int64_t step;
};

/* A batch through all layers, down to the gradient of the last layer's values. */
static void run_forward(const Training &t, int part, int64_t first, int count) {
  const int64_t *const chosen = t.chosen + first;
  gather<<<blocks(count * kPixels), kThreads, 0, t.stream>>>(t.data[part].pixels, chosen, t.net[0].input, count);
  for (int l = 0; l < kLayers; ++l) {
    const Layer &at = t.net[l];
    float *const value = l < kLayers - 1 ? t.net[l + 1].input : t.values;
    forward<<<blocks(count * at.out), kThreads, 0, t.stream>>>(at.input, at.weight, at.bias, value, count, at.in, at.out,
                                                               l < kLayers - 1);
  }
  loss<<<1, count, 0, t.stream>>>(t.values, t.data[part].labels, chosen, t.net[kLayers - 1].delta, t.sums, count);
  CHECK(cudaGetLastError());
}

/* The heart of it. Nothing here waits for the GPU. */
static void train_step(const Training &t, int64_t first, int count) {
  run_forward(t, 1, first, count);
  CHECK(ddp_model_begin_backward(t.model, DDP_PASS_REDUCE));
  for (int l = kLayers - 1; l >= 0; --l) {
    const Layer &at = t.net[l];
    backward<<<blocks(at.in * at.out), kThreads, 0, t.stream>>>(at.delta, at.input, at.weight_grad, at.bias_grad, count,
                                                                at.in, at.out);
    /* Launched is enough: libddp takes them after what is in the stream now, while the layers below are computed. */
    CHECK(ddp_model_mark_ready(t.model, at.bias_index, t.stream));
    CHECK(ddp_model_mark_ready(t.model, at.weight_index, t.stream));
    if (l == 0) break;
    pass_down<<<blocks(count * at.in), kThreads, 0, t.stream>>>(at.delta, at.weight, at.input, t.net[l - 1].delta, count,
                                                                at.in, at.out);
  }
  CHECK(cudaGetLastError());
  CHECK(ddp_model_end_backward(t.model, t.stream)); /* what comes later in the stream sees the mean over all ranks */
  CHECK(ddp_optimizer_step(t.optimizer, t.stream));
}

/* A short linear warm-up, then down along a cosine, as in 02_train. */
static double rate_at(int64_t step, int64_t steps) {
  const double top = 0.004, warm_up = 50, done = static_cast<double>(step);
  if (done < warm_up) return top * (done + 1) / warm_up;
  return 0.02 * top + 0.98 * top * 0.5 * (1 + std::cos(3.14159265358979 * done / static_cast<double>(steps)));
}

/* This rank's share of the test (part 0) or training samples (part 1) once; then `result` is loss, right answers and
 * samples over all ranks. */
static void run_epoch(Training &t, int part, int64_t epoch, double result[3]) {
  const int64_t share = t.share[part], steps = kEpochs * ((share + t.batch - 1) / t.batch);
  std::vector<int64_t> order(static_cast<size_t>(share));
  CHECK(ddp_sampler_fill(&t.sampler[part], epoch, 0, share, order.data()));
  CHECK(cudaMemcpyAsync(t.chosen, order.data(), order.size() * sizeof order[0], cudaMemcpyHostToDevice, t.stream));
  CHECK(cudaMemsetAsync(t.sums, 0, 3 * sizeof *t.sums, t.stream));
  for (int64_t first = 0; first < share; first += t.batch) {
    const int count = static_cast<int>(share - first < t.batch ? share - first : t.batch);
    if (part == 0) {
      run_forward(t, 0, first, count);
    } else {
      CHECK(ddp_optimizer_set_rate(t.optimizer, rate_at(t.step++, steps)));
      train_step(t, first, count);
    }
  }
  CHECK(cudaMemcpyAsync(result, t.sums, 3 * sizeof *result, cudaMemcpyDeviceToHost, t.stream));
  CHECK(cudaStreamSynchronize(t.stream)); /* the only place where a rank waits for its GPU */
  CHECK(ddp_group_reduce_metrics(t.group, result, 3, DDP_SUM));
}

/* ---- More ranks than GPUs: NCCL refuses two ranks on one GPU of a host, so each rank claims a host of its own, and they
 * talk over the loopback interface. Must be in the environment before NCCL's first call. Not supported by NVIDIA; for
 * tests. ---- */

static void pretend_many_hosts(int local_rank) {
  char host[32];
  snprintf(host, sizeof host, "07_cuda-%d", local_rank);
  setenv("NCCL_HOSTID", host, 0);
  const char *const settings[][2] = {{"NCCL_SOCKET_IFNAME", "=lo"}, {"NCCL_NET", "Socket"},   {"NCCL_P2P_DISABLE", "1"},
                                     {"NCCL_SHM_DISABLE", "1"},     {"NCCL_IB_DISABLE", "1"}, {"NCCL_MNNVL_ENABLE", "0"},
                                     {"NCCL_NVLS_ENABLE", "0"},     {"NCCL_RAS_ENABLE", "0"}, {"NCCL_WIN_ENABLE", "0"},
                                     {"NCCL_ALGO", "Ring"},         {"NCCL_PROTO", "Simple"}, {"NCCL_MAX_CTAS", "2"}};
  for (const auto &setting : settings) setenv(setting[0], setting[1], 0);
}

/* The GPU of this rank. On a machine without any, libddp reports what is missing. */
static int choose_gpu() {
  const char *const rank_text = getenv("LOCAL_RANK"), *const size_text = getenv("LOCAL_WORLD_SIZE");
  const int rank = rank_text ? atoi(rank_text) : 0, size = size_text ? atoi(size_text) : 1;
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) return rank;
  if (size > gpus) pretend_many_hosts(rank);
  if (size > gpus && rank == 0)
    printf("%d ranks share %d GPU%s, for a try: timings mean nothing here\n", size, gpus, gpus == 1 ? "" : "s");
  CHECK(cudaSetDevice(rank % gpus));
  return rank % gpus;
}

static void prepare(Training &t, const char *digits, int device) {
  load_digits(digits, t.data);
  start_network(t.net, t.values);
  t.sums = on_gpu(std::vector<double>(3));
  t.chosen = on_gpu(std::vector<int64_t>(static_cast<size_t>(t.data[1].count)));
  for (int part = 0; part < 2; ++part) {
    CHECK(ddp_sampler_init(&t.sampler[part], sizeof t.sampler[part]));
    t.sampler[part].dataset_size = t.data[part].count;
    t.sampler[part].rank = ddp_group_get_rank(t.group);
    t.sampler[part].size = ddp_group_get_size(t.group);
    CHECK(ddp_sampler_get_count(&t.sampler[part], &t.share[part]));
  }
  CHECK(cudaStreamCreateWithFlags(&t.stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize()); /* what was copied above went another way than this stream */
  t.model = lend_network(t.group, t.net, device, t.stream);
  CHECK(ddp_optimizer_create_adam(t.model, nullptr, nullptr, &t.optimizer)); /* the defaults of AdamW */
}

int main(int argc, char **argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0); /* under a launcher stdout is a pipe: show each line when it is printed */
  const int device = choose_gpu();
  Training t = {};
  ddp_group_options options;
  CHECK(ddp_group_options_init(&options, sizeof options));
  options.backend = DDP_BACKEND_NCCL;
  options.device_index = device;
  CHECK(ddp_group_create(nullptr, &options, &t.group));
  const int rank = ddp_group_get_rank(t.group), size = ddp_group_get_size(t.group);
  if (size > kGlobalBatch)
    return fprintf(stderr, "A batch of %d samples cannot be shared by %d ranks: start fewer.\n", kGlobalBatch, size), 1;
  t.batch = kGlobalBatch / size; /* the global batch is the same on any number of ranks, so they learn the same */
  prepare(t, argc > 1 ? argv[1] : DIGITS_CSV, device);

  double learned[3], tested[3] = {0, 0, 1};
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    run_epoch(t, 1, epoch, learned);
    run_epoch(t, 0, epoch, tested);
    if (rank == 0)
      printf("epoch %2d  loss %.4f  train %6.2f %%  test %6.2f %%\n", epoch, learned[0] / learned[2],
             100 * learned[1] / learned[2], 100 * tested[1] / tested[2]);
  }

  int64_t hash = 0;
  CHECK(ddp_model_check_replicas(t.model, t.stream)); /* all ranks hold the same weights, or this names who does not */
  CHECK(ddp_model_get_hash(t.model, &hash));
  printf("weights of rank %d: %016llx\n", rank, static_cast<unsigned long long>(hash));
  if (rank == 0) printf("all equal\ntest accuracy %.2f %%\n", 100 * tested[1] / tested[2]);

  ddp_optimizer_destroy(t.optimizer);
  ddp_model_destroy(t.model);
  ddp_group_destroy(t.group);
  return 0; /* the program's own memory goes with the process */
}

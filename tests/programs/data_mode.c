// A CUDA program with results: `data_mode FIRST COUNT` does a random workload for each of COUNT seeds and prints one line for
// each: the seed, a digest of every byte it computed, and how many of its 1000th parts were finite numbers.
//
// A workload is like training: buffers of 4 KiB to tens of MiB, of every kind that device memory comes in; a recipe of kernels,
// copies, memsets and host functions on four streams, repeated with other numbers; results read back each round; now and then
// a buffer is freed and another one made in its place. Each buffer has one event, recorded by whatever used it last and
// waited for by whatever uses it next: so the program is free of races, and its digest is a function of the seed alone.
//
// Beside the buffers there are tensors that live for a moment, cut from a pool as PyTorch's caching allocator cuts them: reported when they are
// handed out, taken back as soon as their last use is issued, and handed out again at once, while it still runs. What is in a
// tensor is written before it is read, and nothing of it is read after it was taken back.
#include "data_mode.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POOL = 24 << 20, TENSORS = 8, BUFFERS = 20, STREAMS = 4, OPS = 20, ROW = 1 << 14, STAGE = 1 << 15, LARGEST = 24 << 20 };
typedef enum { FILL, COPY, SCALE, AXPY, SUM, GATHER, MATMUL, UPLOAD, UPLOAD_PAGEABLE, DOWNLOAD, DEVICE_COPY, SET, AT_ONCE, KINDS } kind;

// `rows` of `width` floats, `pitch` bytes apart. What lies between rows is never read.
typedef struct {
    float *at;
    size_t pitch, width, rows;
    event_t used;
} buffer;
// One line of the recipe: up to three operands (buffer, and a number that picks a piece of it), at most `n` floats each.
typedef struct {
    kind kind;
    int stream, operand[3];
    uint64_t place[3], n;
    float *stage; // pinned, of STAGE floats
    event_t staged;
    uint64_t digest, staged_bytes;
} op;

static uint64_t state;
static uint64_t any(void) { // xorshift64*
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return state * 0x2545f4914f6cdd1d;
}
static uint64_t below(uint64_t n) { return (any() >> 11) % n; }
static float around_zero(void) { return (float)((int)below(2001) - 1000) / 1000; }

static uint64_t mix(uint64_t digest, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i += 4) {
        uint32_t word;
        memcpy(&word, (const char *)bytes + i, 4);
        digest = (digest ^ word) * 0x9e3779b97f4a7c15;
        digest ^= digest >> 32;
    }
    return digest;
}

static buffer buffers[BUFFERS];
static op recipe[OPS];
static stream_t streams[STREAMS];
static float *results, *host;
static event_t results_used;

// A buffer of about `bytes`, with every float of it written.
static void make(buffer *b, size_t bytes) {
    size_t n = bytes / 4;
    unsigned how = below(8);
    *b = (buffer){.used = b->used};
    if (how == 0 && n > 2 * ROW) {
        b->width = ROW - below(ROW / 2), b->rows = n / b->width;
        OK(cudaMallocPitch((void **)&b->at, &b->pitch, b->width * 4, b->rows));
    } else {
        b->width = n, b->rows = 1, b->pitch = n * 4;
        OK(how == 1 ? cudaMallocManaged((void **)&b->at, n * 4, ATTACH_GLOBAL) : cudaMalloc((void **)&b->at, n * 4));
    }
    stream_t s = streams[below(STREAMS)];
    switch (below(3)) {
    case 0:
        for (size_t i = 0; i < b->width * b->rows; i++) host[i] = (float)i / 64;
        OK(cudaMemcpy2D(b->at, b->pitch, host, b->width * 4, b->width * 4, b->rows, HOST_TO_DEVICE));
        break;
    case 1: OK(cudaMemset2D(b->at, b->pitch, (int)below(64), b->width * 4, b->rows)); break;
    default:
        for (size_t row = 0; row < b->rows; row++) fill(b->at + row * b->pitch / 4, b->width, around_zero(), s);
    }
    // Memsets and copies above went to the null stream, which streams of the other kind do not wait for.
    OK(cudaDeviceSynchronize());
    OK(cudaEventRecord(b->used, s));
}

static void release(buffer *b) {
    OK(cudaFree(b->at)); // waits for whatever still uses it
    b->at = NULL;
}

// `n` floats of operand `k`.
static float *piece(const op *o, int k, uint64_t n) {
    const buffer *b = &buffers[o->operand[k]];
    return b->at + o->place[k] % b->rows * (b->pitch / 4) + (o->place[k] >> 20) % (b->width - n + 1);
}

static void hash_stage(void *argument) {
    op *o = argument;
    o->digest = mix(o->digest, o->stage, o->staged_bytes);
}

static void run(op *o) {
    static const int operands[KINDS] = {1, 2, 1, 2, 1, 3, 3, 1, 1, 1, 2, 1, 1};
    stream_t s = streams[o->stream];
    uint64_t n = o->n;
    for (int k = 0; k < operands[o->kind]; k++) {
        const buffer *b = &buffers[o->operand[k]];
        if (n > b->width) n = b->width;
        OK(cudaStreamWaitEvent(s, b->used, 0));
    }
    if (o->kind >= UPLOAD && o->kind <= DOWNLOAD && n > STAGE) n = STAGE;
    float *p[3];
    for (int k = 0; k < operands[o->kind]; k++) p[k] = piece(o, k, n);
    switch (o->kind) {
    case FILL: fill(p[0], n, around_zero(), s); break;
    case COPY: copy(p[0], p[1], n, s); break;
    case SCALE: scale(p[0], n, around_zero() * 0.75f, s); break;
    case AXPY: axpy(p[0], p[1], n, around_zero() * 0.5f, s); break;
    case SUM: {
        OK(cudaStreamWaitEvent(s, results_used, 0));
        sum(results + below(STAGE), p[0], n, s);
        OK(cudaEventRecord(results_used, s));
        break;
    }
    case GATHER: gather(p[0], p[1], p[2], n, n, s); break;
    case MATMUL: {
        uint64_t rows = 1 + o->place[0] % 32, columns = 1 + o->place[1] % 32, inner = 1 + o->place[2] % 32;
        if (n < 32 * 32) break;
        fill(p[1], rows * inner, around_zero(), s);
        fill(p[2], inner * columns, around_zero(), s);
        matmul(p[0], p[1], p[2], rows, columns, inner, s);
        break;
    }
    case UPLOAD:
        OK(cudaEventSynchronize(o->staged)); // the last round's copy has left the stage
        for (uint64_t i = 0; i < n; i++) o->stage[i] = around_zero();
        OK(cudaMemcpyAsync(p[0], o->stage, n * 4, HOST_TO_DEVICE, s));
        OK(cudaEventRecord(o->staged, s));
        break;
    case UPLOAD_PAGEABLE:
        for (uint64_t i = 0; i < n; i++) host[i] = around_zero();
        OK(cudaMemcpyAsync(p[0], host, n * 4, BY_ADDRESS, s));
        break;
    case DOWNLOAD:
        OK(cudaStreamSynchronize(s)); // the last round's host function has read the stage
        o->staged_bytes = n * 4;
        OK(cudaMemcpyAsync(o->stage, p[0], n * 4, DEVICE_TO_HOST, s));
        OK(cudaLaunchHostFunc(s, hash_stage, o));
        break;
    case DEVICE_COPY: OK(cudaMemcpyAsync(p[0], p[1], n * 4, DEVICE_TO_DEVICE, s)); break;
    case SET: OK(cudaMemsetAsync(p[0], (int)below(64), n * 4, s)); break;
    default:
        OK(cudaEventSynchronize(buffers[o->operand[0]].used));
        OK(cudaMemcpy(host, p[0], n * 4, DEVICE_TO_HOST));
        o->digest = mix(o->digest, host, n * 4);
        for (uint64_t i = 0; i < n; i++) host[i] *= 0.5f;
        OK(cudaMemcpy(p[0], host, n * 4, HOST_TO_DEVICE));
    }
    for (int k = 0; k < operands[o->kind]; k++) OK(cudaEventRecord(buffers[o->operand[k]].used, s));
}

typedef struct { int8_t kind, index; } device;
// PyTorch's own notice, which DeepUM listens to.
extern void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, size_t, size_t, device);
static void report(void *at, int64_t bytes) {
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(at, bytes, 0, 0, (device){1, 0});
}

typedef struct { size_t from, bytes; } tensor;
static char *pool;
static event_t pool_used; // recorded by the last user of any tensor, and waited for by the first user of the next one

// Tensors come and go, up to eight at a time; some outlive others.
static void traffic(void) {
    tensor live[TENSORS];
    int count = 0;
    for (uint64_t steps = 4 + below(12); steps || count; steps -= steps > 0) {
        if (steps && count < TENSORS && (count == 0 || below(2))) {
            // First fit of the allocator: the lowest gap that is large enough.
            size_t bytes = below(3) ? (2 + below(6)) << 20 : 512 * (1 + below(4096)), from = 0;
            for (int i = 0; i < count;) {
                if (from < live[i].from + live[i].bytes && live[i].from < from + bytes) from = live[i].from + live[i].bytes, i = 0;
                else i++;
            }
            if (from + bytes > POOL) continue;
            live[count++] = (tensor){from, bytes};
            report(pool + from, (int64_t)bytes);
            float *x = (float *)(pool + from);
            stream_t s = streams[below(STREAMS)];
            OK(cudaStreamWaitEvent(s, pool_used, 0));
            fill(x, bytes / 4, around_zero(), s);
            OK(cudaEventRecord(pool_used, s));
        } else {
            int i = (int)below((uint64_t)count);
            tensor t = live[i];
            float *x = (float *)(pool + t.from);
            stream_t s = streams[below(STREAMS)];
            OK(cudaStreamWaitEvent(s, pool_used, 0));
            OK(cudaStreamWaitEvent(s, results_used, 0));
            sum(results + below(STAGE), x + below(t.bytes / 8), t.bytes / 8, s);
            OK(cudaEventRecord(results_used, s));
            OK(cudaEventRecord(pool_used, s));
            live[i] = live[--count];
            report(pool + t.from, -(int64_t)t.bytes);
        }
    }
}

static void workload(uint64_t seed) {
    state = (seed + 1) * 0x9e3779b97f4a7c15;
    for (int i = 0; i < 8; i++) any();
    // One seed in sixteen has buffers of tens of MiB.
    size_t total = 0, want = seed % 16 == 15 ? (size_t)96 << 20 : (20 + below(16)) << 20;
    int count = 0;
    for (; count < BUFFERS && (count < 6 || total < want); count++) {
        size_t large = want / 3 < LARGEST ? want / 3 : LARGEST;
        size_t bytes = 4096 + below((size_t)4096 << below(12));
        if (count % 3 == 0) bytes = (1 << 20) + below(large);
        if (bytes > LARGEST) bytes = LARGEST;
        make(&buffers[count], bytes / 4 * 4);
        total += bytes;
    }
    OK(cudaMalloc((void **)&pool, POOL));
    OK(cudaMalloc((void **)&results, STAGE * 4));
    OK(cudaMemset(results, 0, STAGE * 4));
    OK(cudaDeviceSynchronize());
    int ops = 8 + (int)below(OPS - 8), rounds = 4 + (int)below(5);
    for (int i = 0; i < ops; i++) {
        op *o = &recipe[i];
        o->kind = (kind)below(KINDS), o->stream = (int)below(STREAMS);
        o->n = 1 + below((size_t)1 << (8 + below(12))), o->digest = 0;
        for (int k = 0; k < 3; k++) {
            o->place[k] = any();
            do o->operand[k] = (int)below((uint64_t)count);
            while ((k > 0 && o->operand[k] == o->operand[0]) || (k > 1 && o->operand[k] == o->operand[1]));
        }
    }
    uint64_t digest = seed;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < ops; i++) {
            run(&recipe[i]);
            if (below(4) == 0) traffic();
        }
        float loss;
        OK(cudaEventSynchronize(results_used));
        OK(cudaMemcpy(&loss, results + below(STAGE), 4, DEVICE_TO_HOST));
        digest = mix(digest, &loss, 4);
        if (below(2)) {
            buffer *b = &buffers[below((uint64_t)count)];
            size_t bytes = b->width * b->rows * 4;
            release(b);
            make(b, bytes / 2 / 4 * 4 + 4 + below(bytes / 4 + 1) * 4 / 2);
        }
    }
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < ops; i++) digest = mix(digest, &recipe[i].digest, 8);
    OK(cudaMemcpy(host, results, STAGE * 4, DEVICE_TO_HOST));
    digest = mix(digest, host, STAGE * 4);
    size_t floats = 0, finite = 0;
    for (int i = 0; i < count; i++) {
        buffer *b = &buffers[i];
        size_t n = b->width * b->rows;
        OK(cudaMemcpy2D(host, b->width * 4, b->at, b->pitch, b->width * 4, b->rows, DEVICE_TO_HOST));
        digest = mix(digest, host, n * 4);
        for (size_t j = 0; j < n; j++) finite += host[j] - host[j] == 0;
        floats += n;
        release(b);
    }
    OK(cudaFree(results));
    OK(cudaFree(pool));
    printf("%lu %016lx %lu\n", (unsigned long)seed, (unsigned long)digest, (unsigned long)(finite * 1000 / floats));
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: data_mode FIRST COUNT\n"), 2;
    // A line is out when its seed is done, also where the program is killed after it.
    setvbuf(stdout, NULL, _IOLBF, 0);
    uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
    // The null stream, one that it waits for, and two that it does not.
    OK(cudaStreamCreate(&streams[1]));
    for (int i = 2; i < STREAMS; i++) OK(cudaStreamCreateWithFlags(&streams[i], NON_BLOCKING));
    for (int i = 0; i < BUFFERS; i++) OK(cudaEventCreateWithFlags(&buffers[i].used, NO_TIMING));
    OK(cudaEventCreateWithFlags(&results_used, NO_TIMING));
    OK(cudaEventCreateWithFlags(&pool_used, NO_TIMING));
    for (int i = 0; i < OPS; i++) {
        OK(cudaMallocHost((void **)&recipe[i].stage, STAGE * 4));
        OK(cudaEventCreateWithFlags(&recipe[i].staged, NO_TIMING));
    }
    host = malloc(LARGEST);
    for (uint64_t seed = first; seed < first + count; seed++) workload(seed);
    for (int i = 0; i < OPS; i++) {
        OK(cudaFreeHost(recipe[i].stage));
        OK(cudaEventDestroy(recipe[i].staged));
    }
    for (int i = 0; i < BUFFERS; i++) OK(cudaEventDestroy(buffers[i].used));
    OK(cudaEventDestroy(results_used));
    OK(cudaEventDestroy(pool_used));
    for (int i = 1; i < STREAMS; i++) OK(cudaStreamDestroy(streams[i]));
    free(host);
    OK(cudaGetLastError());
    return 0;
}

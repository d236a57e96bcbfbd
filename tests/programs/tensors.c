// Tensors with results: `tensors FIRST COUNT` trains for each of COUNT seeds and prints one line for each: the seed, a digest of
// every number it read back, and how many of their 1000th parts were finite.
//
// Memory comes from an allocator as PyTorch's (caching_allocator.h), which gives segments back now and then. A tensor is freed as
// soon as its last use was issued, so its memory is handed out again, or given up, while kernels that read it are still queued. New tensors
// are written before they are read and hold whatever was there before; so what is thrown away too early, or too late, changes the digest.
//
// Every tensor has one event, recorded by whatever used it last and waited for by whatever uses it next on another stream: the
// program is free of races, and its digest is a function of the seed alone. One seed in four has two threads, each with
// streams and tensors of its own, on one allocator.
#ifdef POOL
#include "pool_allocator.h"
#else
#include "caching_allocator.h"
#endif
#include <string.h>

enum { LAYERS = 9, STAGE = 1 << 13, PIECE = 1 << 11 };

// ---- Tensors

static stream_t streams[STREAMS * THREADS];

typedef struct {
    block *block;
    size_t floats;
    unsigned used;
    int last; // the stream that used it last
    event_t event;
} tensor;

typedef struct {
    uint64_t state, digest, read, finite;
    int first_stream;
    float *stage, *results;
    event_t staged;
    tensor weight[LAYERS], out[LAYERS + 1], grad[LAYERS + 1], work;
    size_t floats[LAYERS + 1];
    int shape[LAYERS], layers, rounds;
} worker;
static worker workers[THREADS];

static uint64_t any(worker *w) { // xorshift64*
    w->state ^= w->state >> 12, w->state ^= w->state << 25, w->state ^= w->state >> 27;
    return w->state * 0x2545f4914f6cdd1d;
}
static uint64_t below(worker *w, uint64_t n) { return (any(w) >> 11) % n; }
static float around_zero(worker *w) { return (float)((int)below(w, 2001) - 1000) / 1000; }

// Three pieces of a tensor are ever used: at its beginning, in its middle, at its end.
static size_t piece_floats(const tensor *t) { return t->floats / 3 < PIECE ? t->floats / 3 : PIECE; }
static float *piece(const tensor *t, int k) {
    size_t n = piece_floats(t);
    return (float *)t->block->at + (k == 0 ? 0 : k == 1 ? (t->floats - n) / 2 : t->floats - n);
}
static size_t both(const tensor *a, const tensor *b) {
    return piece_floats(a) < piece_floats(b) ? piece_floats(a) : piece_floats(b);
}
static stream_t use(tensor *t, int stream) {
    if (t->last != stream) OK(cudaStreamWaitEvent(streams[stream], t->event, 0));
    t->used |= 1u << stream, t->last = stream;
    return streams[stream];
}
static void done(tensor *t) { OK(cudaEventRecord(t->event, streams[t->last])); }

// A tensor of so many floats, every piece of it written.
static void make(worker *w, tensor *t, size_t floats, int stream) {
    t->floats = floats, t->used = 0, t->last = stream;
    t->block = take(floats * 4, stream);
    stream_t s = use(t, stream);
    size_t n = piece_floats(t);
    switch (below(w, 8)) {
    case 0: OK(cudaMemsetAsync(t->block->at, (int)below(w, 64), floats * 4, s)); break;
    case 1:
        OK(cudaEventSynchronize(w->staged));
        for (size_t i = 0; i < n; i++) w->stage[i] = around_zero(w);
        for (int k = 0; k < 3; k++) OK(cudaMemcpyAsync(piece(t, k), w->stage, n * 4, HOST_TO_DEVICE, s));
        OK(cudaEventRecord(w->staged, s));
        break;
    default: for (int k = 0; k < 3; k++) fill(piece(t, k), n, around_zero(w), s);
    }
    done(t);
}
static void end(tensor *t) {
    put_back(t->block, t->used, streams);
    t->block = NULL;
}
// to := something of to and from
static void combine(worker *w, tensor *to, tensor *from, int stream) {
    stream_t s = use(to, stream);
    use(from, stream);
    size_t n = both(to, from);
    unsigned how = (unsigned)below(w, 8);
    for (int k = 0; k < 3; k++) {
        float *t = piece(to, k), *f = piece(from, k);
        if (how == 0) OK(cudaMemcpyAsync(t, f, n * 4, DEVICE_TO_DEVICE, s));
        else if (how == 1) copy(t, f, n, s);
        else axpy(t, f, n, around_zero(w) * 0.5f, s);
    }
    if (how == 2) for (int k = 0; k < 3; k++) scale(piece(to, k), n, around_zero(w) * 0.75f, s);
    done(to), done(from);
}
// So many floats of the stage, into the digest.
static void mix(worker *w, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &w->stage[i], 4);
        w->digest = (w->digest ^ word) * 0x9e3779b97f4a7c15;
        w->digest ^= w->digest >> 32;
        w->finite += w->stage[i] - w->stage[i] == 0;
    }
    w->read += n;
}
static void read_back(worker *w, tensor *t) {
    OK(cudaEventSynchronize(t->event));
    OK(cudaEventSynchronize(w->staged)); // the last upload has left the stage
    size_t n = piece_floats(t);
    for (int k = 0; k < 3; k++) {
        OK(cudaMemcpy(w->stage, piece(t, k), n * 4, DEVICE_TO_HOST));
        mix(w, n);
    }
}
// A tensor that lives for one operation.
static void workspace(worker *w, tensor *of, int stream) {
    make(w, &w->work, 1024 + below(w, MIB), stream);
    combine(w, &w->work, of, stream);
    combine(w, of, &w->work, stream);
    end(&w->work);
}

static int a_stream(worker *w) { return w->first_stream + (below(w, 4) ? 0 : (int)below(w, STREAMS)); }

static void *train(void *of) {
    worker *w = of;
    for (int l = 0; l < w->layers; l++) make(w, &w->weight[l], 3 * (w->floats[l] / 4) + 3, w->first_stream);
    for (int round = 0; round < w->rounds; round++) {
        // Now and then the sequence is longer or shorter, and the allocator cuts its memory in another way.
        size_t part = below(w, 3) ? 8 : 5 + below(w, 6);
        make(w, &w->out[0], w->floats[0] * part / 8 + 3, w->first_stream);
        for (int l = 0; l < w->layers; l++) {
            int s = w->first_stream + w->shape[l] % STREAMS;
            make(w, &w->out[l + 1], w->floats[l + 1] * part / 8 + 3, s);
            combine(w, &w->out[l + 1], &w->weight[l], s);
            combine(w, &w->out[l + 1], &w->out[l], s);
            if (w->shape[l] & 4) workspace(w, &w->out[l + 1], s);
            // Some activations are not needed again; some are freed by a side stream's last use.
            if (w->shape[l] & 8) end(&w->out[l]);
        }
        make(w, &w->grad[w->layers], w->floats[w->layers] * part / 8 + 3, w->first_stream);
        combine(w, &w->grad[w->layers], &w->out[w->layers], a_stream(w));
        end(&w->out[w->layers]);
        if (below(w, 2)) read_back(w, &w->grad[w->layers]);
        for (int l = w->layers - 1; l >= 0; l--) {
            make(w, &w->grad[l], w->floats[l] * part / 8 + 3, w->first_stream);
            combine(w, &w->grad[l], &w->grad[l + 1], w->first_stream);
            if (w->out[l].block) {
                combine(w, &w->grad[l], &w->out[l], a_stream(w));
                end(&w->out[l]);
            }
            combine(w, &w->weight[l], &w->grad[l + 1], a_stream(w));
            end(&w->grad[l + 1]);
        }
        end(&w->grad[0]);
        stream_t s = use(&w->weight[0], w->first_stream);
        sum(w->results + below(w, STAGE), piece(&w->weight[0], 1), piece_floats(&w->weight[0]), s);
        done(&w->weight[0]);
        if (below(w, 8) == 0) {
            pthread_mutex_lock(&allocator);
            give_back_segments();
            pthread_mutex_unlock(&allocator);
        }
    }
    for (int l = 0; l < w->layers; l++) read_back(w, &w->weight[l]);
    OK(cudaMemcpy(w->stage, w->results, STAGE * 4, DEVICE_TO_HOST));
    mix(w, STAGE);
    for (int l = 0; l < w->layers; l++) end(&w->weight[l]);
    return NULL;
}

static void workload(uint64_t seed) {
    int threads = seed % 4 == 3 ? 2 : 1;
    uint64_t digest = seed, read = 0, finite = 0;
    for (int i = 0; i < threads; i++) {
        worker *w = &workers[i];
        w->state = (seed * THREADS + (uint64_t)i + 1) * 0x9e3779b97f4a7c15;
        for (int k = 0; k < 8; k++) any(w);
        w->digest = seed, w->read = w->finite = 0, w->first_stream = i * STREAMS;
        w->layers = 4 + (int)below(w, LAYERS - 3), w->rounds = 3 + (int)below(w, 2);
        // Between 16 KiB and 3.5 MiB; all activations together are 5 to 15 MiB.
        for (int l = 0; l <= w->layers; l++) w->floats[l] = l % 3 ? 4096 + below(w, MIB / 2) : MIB / 8 + below(w, 3 * MIB / 4);
        for (int l = 0; l < w->layers; l++) w->shape[l] = (int)below(w, 16);
        OK(cudaMemset(w->results, 0, STAGE * 4));
    }
    OK(cudaDeviceSynchronize());
    pthread_t other;
    if (threads > 1 && pthread_create(&other, NULL, train, &workers[1]) != 0) exit(1);
    train(&workers[0]);
    if (threads > 1) pthread_join(other, NULL);
    for (int i = 0; i < threads; i++) {
        digest = (digest ^ workers[i].digest) * 0x9e3779b97f4a7c15;
        read += workers[i].read, finite += workers[i].finite;
    }
    OK(cudaDeviceSynchronize());
    // Every third seed leaves its segments to the next one, as a long program does.
    look_at_events();
    if (seed % 3) give_back_segments();
    printf("%lu %016lx %lu\n", (unsigned long)seed, (unsigned long)digest, (unsigned long)(finite * 1000 / read));
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: tensors FIRST COUNT\n"), 2;
    uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
    // The null stream, one that it waits for, and others that it does not.
    OK(cudaStreamCreate(&streams[1]));
    for (int i = 2; i < STREAMS * THREADS; i++) OK(cudaStreamCreateWithFlags(&streams[i], NON_BLOCKING));
    for (worker *w = workers; w < workers + THREADS; w++) {
        OK(cudaMallocHost((void **)&w->stage, STAGE * 4));
        OK(cudaMalloc((void **)&w->results, MIB));
        OK(cudaEventCreateWithFlags(&w->staged, NO_TIMING));
        tensor *tensors[] = {w->weight, w->out, w->grad, &w->work};
        int counts[] = {LAYERS, LAYERS + 1, LAYERS + 1, 1};
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < counts[k]; i++) OK(cudaEventCreateWithFlags(&tensors[k][i].event, NO_TIMING));
    }
    for (uint64_t seed = first; seed < first + count; seed++) workload(seed);
    OK(cudaGetLastError());
    fflush(stdout);
    // What is to be asked about us before we end.
    const char *at_end = getenv("AT_END");
    return at_end ? system(at_end) != 0 : 0;
}

// Memory of a stream-ordered pool, for the program that also runs on caching_allocator.h: each tensor is a block of the default pool, freed in the
// stream of its last users, which waits for the others.
#pragma once
#include "data_mode.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { STREAMS = 3, THREADS = 2, MIB = 1 << 20 };

int cudaMallocAsync(void **, size_t, stream_t), cudaFreeAsync(void *, stream_t), cudaMemPoolTrimTo(void *, size_t);
int cudaDeviceGetDefaultMemPool(void **, int), cudaMemPoolSetAttribute(void *, int, void *);

static stream_t streams[STREAMS * THREADS];
static pthread_mutex_t allocator = PTHREAD_MUTEX_INITIALIZER;
typedef struct {
    char *at;
    int pool;
} block;

static block *take(size_t bytes, int pool) {
    block *b = malloc(sizeof *b);
    if (!b) exit(1);
    b->pool = pool;
    OK(cudaMallocAsync((void **)&b->at, bytes, streams[pool]));
    return b;
}
// `used`: a bit for each stream that used it, of those in `of`. Half of the blocks go by the door that waits for nobody, once they are idle.
static void put_back(block *b, unsigned used, const stream_t *of) {
    static _Thread_local unsigned turn;
    int last = b->pool;
    for (int i = 0; i < STREAMS * THREADS; i++)
        if (used >> i & 1) last = i;
    for (int i = 0; i < STREAMS * THREADS; i++)
        if ((used >> i & 1 || i == b->pool) && i != last) {
            event_t event;
            OK(cudaEventCreateWithFlags(&event, NO_TIMING));
            OK(cudaEventRecord(event, of[i]));
            OK(cudaStreamWaitEvent(of[last], event, 0));
            OK(cudaEventDestroy(event));
        }
    if (turn++ % 16 == 0) {
        OK(cudaStreamSynchronize(of[last]));
        OK(cudaFree(b->at));
    } else OK(cudaFreeAsync(b->at, of[last]));
    free(b);
}
// Every other time what nobody uses goes, and from then on nothing stays at a synchronisation, or all.
static void give_back_segments(void) {
    static uint64_t times;
    void *pool;
    uint64_t keep = times++ % 2 ? UINT64_MAX : 0;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolSetAttribute(pool, 4, &keep));
    if (keep) OK(cudaMemPoolTrimTo(pool, MIB));
}
static void look_at_events(void) {}

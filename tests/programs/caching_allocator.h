// Memory as PyTorch's caching allocator has it, and reports it: segments of device memory, cut into blocks by best fit, one pool per stream, merged when they come back,
// segments given back when asked for. A block that other streams used comes back when their events have happened, but is reported at once.
#pragma once
#include "data_mode.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { STREAMS = 3, THREADS = 2, MIB = 1 << 20, MANY = 4096 };

typedef struct { int8_t kind, index; } device;
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, size_t, size_t, device);
static void report(void *at, int64_t size) {
    device gpu = {1, 0};
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(at, size, 0, 0, gpu);
}

typedef struct block {
    char *at;
    size_t size;
    int pool; // of which stream
    int state; // one of those below
    int events; // that must happen before it is free
    event_t after[STREAMS * THREADS];
    struct block *before, *behind; // neighbours in its segment
} block;
enum { UNUSED, FREE, TAKEN, WAITING };
static block blocks[MANY];
static event_t spare[MANY];
static int spares;
static pthread_mutex_t allocator = PTHREAD_MUTEX_INITIALIZER;

static block *new_block(char *at, size_t size, int pool) {
    for (block *b = blocks; b < blocks + MANY; b++)
        if (b->state == UNUSED) {
            *b = (block){.at = at, .size = size, .pool = pool, .state = FREE};
            return b;
        }
    fprintf(stderr, "the allocator has no room for more blocks\n");
    exit(1);
}
static void merge(block *b) {
    b->state = FREE;
    if (b->before && b->before->state == FREE) {
        block *left = b->before;
        left->size += b->size, left->behind = b->behind;
        if (b->behind) b->behind->before = left;
        b->state = UNUSED, b = left;
    }
    block *right = b->behind;
    if (right && right->state == FREE) {
        b->size += right->size, b->behind = right->behind;
        if (right->behind) right->behind->before = b;
        right->state = UNUSED;
    }
}
static void look_at_events(void) {
    for (block *b = blocks; b < blocks + MANY; b++) {
        if (b->state != WAITING) continue;
        while (b->events > 0 && cudaEventQuery(b->after[b->events - 1]) == 0) spare[spares++] = b->after[--b->events];
        if (b->events == 0) merge(b);
        else cudaGetLastError(); // that it has not happened yet is no error
    }
}
static void give_back_segments(void) {
    for (block *b = blocks; b < blocks + MANY; b++)
        if (b->state == FREE && !b->before && !b->behind) {
            OK(cudaFree(b->at));
            b->state = UNUSED;
        }
}
static block *take(size_t bytes, int pool) {
    size_t size = (bytes + 511) / 512 * 512;
    pthread_mutex_lock(&allocator);
    look_at_events();
    block *best = NULL;
    for (block *b = blocks; b < blocks + MANY; b++)
        if (b->state == FREE && b->pool == pool && b->size >= size && (!best || b->size < best->size)) best = b;
    if (!best) {
        size_t segment = size <= MIB ? 2 * MIB : size < 5 * MIB ? 10 * MIB : (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
        void *at;
        OK(cudaMalloc(&at, segment));
        best = new_block(at, segment, pool);
    }
    if (best->size - size >= (size <= MIB ? 512 : MIB)) {
        block *rest = new_block(best->at + size, best->size - size, pool);
        rest->before = best, rest->behind = best->behind;
        if (rest->behind) rest->behind->before = rest;
        best->behind = rest, best->size = size;
    }
    best->state = TAKEN;
    report(best->at, (int64_t)best->size);
    pthread_mutex_unlock(&allocator);
    return best;
}
// `used`: a bit for each stream that used it, of those in `streams`.
static void put_back(block *b, unsigned used, const stream_t *streams) {
    pthread_mutex_lock(&allocator);
    report(b->at, -(int64_t)b->size);
    for (int i = 0; i < STREAMS * THREADS; i++)
        if (used >> i & 1 && i != b->pool) {
            event_t event;
            if (spares > 0) event = spare[--spares];
            else OK(cudaEventCreateWithFlags(&event, NO_TIMING));
            OK(cudaEventRecord(event, streams[i]));
            b->after[b->events++] = event;
        }
    if (b->events > 0) b->state = WAITING;
    else merge(b);
    pthread_mutex_unlock(&allocator);
}

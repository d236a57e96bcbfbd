// The fake CUDA: what the test programs and the two fake libraries know of each other.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct { unsigned x, y, z; } dim3;
typedef struct { size_t width, height, depth; } extent3;
typedef struct { void *ptr; size_t pitch, xsize, ysize; } pitched;
typedef struct { dim3 grid, block; size_t shared; void *stream; void *attrs; unsigned count; } runtime_config;
typedef struct { dim3 grid, block; unsigned shared; void *stream; void *attrs; unsigned count; } driver_config;

// In the fake libcuda.so.1.
int fake_calls(const char *name);             // how often the genuine function of this name ran
void fake_fail(const char *name, int status); // its next call returns this and does nothing
void fake_jump(const char *name, void *jmp);  // its next call leaves by longjmp
void fake_end(const char *name);              // its next call ends the thread, unwinding its stack
uint64_t fake_wait(int word_of_last);         // value of the newest stream wait; its word if asked with 1
uint64_t fake_progress(int slot_of_last);     // value of the newest stream write; its word if asked with 1
void fake_create(void *stream);               // a stream that was destroyed is there again, of the same handle
uint64_t fake_kind(const void *address);      // 'm' managed, 'd' device memory, 0 not live

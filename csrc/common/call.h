// How a call crosses from Python into C: one struct of 64-bit fields, written once, here in C. The library tells Python the names of
// its fields in their order (torchcaps_fields), and Python packs a call by these names: see torchcaps/ops/backends/library.py.
#pragma once

#include <cstdint>

// Raised, here and in library.py, when the meaning of a field changes. Fields that come or go are noticed by their names.
#define TORCHCAPS_ABI 2

// A list of fields is a macro FIELDS(NUMBER, TENSOR); these make a struct's members and a text of it.
#define NUMBER_MEMBER(name) int64_t name;
#define TENSOR_MEMBER(name) T* name;
#define NO_MEMBER(name)
#define FIELD_NAME(name) #name " "

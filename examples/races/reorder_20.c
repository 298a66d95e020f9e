/*
 * Reorder with twenty threads: as reorder_3.c, with 19 that set.
 */
#define SETTERS 19
#include "reorder_3.c"

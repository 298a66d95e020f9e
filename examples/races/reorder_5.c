/*
 * Reorder with five threads: as reorder_3.c, with four that set. Race and order as there: the first of the setting threads has to
 * be preempted between its two stores, and the thread that checks has to run before that one goes on and before any other sets.
 */
#define SETTERS 4
#include "reorder_3.c"

/*
 * Two stages with a hundred threads: as twostage.c, with 99 that store. The first of them has to be preempted after its first stage, and
 * the thread that loads has to run before any of the others does its second one.
 */
#define STORING 99
#include "twostage.c"

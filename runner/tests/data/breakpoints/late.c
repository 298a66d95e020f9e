/* A library that is opened late. */
int late(int n) { return n + 1; }

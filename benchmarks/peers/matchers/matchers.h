/* Two matchers as yardsticks for homing's index, on the benchmark's workloads: ATTRIBUTES numbers,
   of which the last is a string's number. Subscriptions come as a table of closed ranges, an open one
   being from -INFINITY to INFINITY; publications have every attribute. */

#ifndef MATCHERS_H
#define MATCHERS_H

#define ATTRIBUTES 11

/* Whoever is found as often as it has ranges, over a segment tree for each attribute. */
void *trees_build(long subscriptions, const double *low, const double *high);
long trees_match(void *trees, long publications, const double *values, int *found);
void trees_free(void *trees);

/* A tree that alternates between attributes and ranges, after the BE-tree of the literature. */
void *betree_build(long subscriptions, const double *low, const double *high);
long betree_match(void *tree, long publications, const double *values, int *found);
void betree_free(void *tree);

#endif

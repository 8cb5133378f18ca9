int root(int rank) {
  return root_of_rank(rank, 2);
}

"""A vision-language model as judge: questions about renders, pairwise preferences, ratings."""

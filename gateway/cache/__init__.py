"""Response cache, with exact and semantic look-ups. Shares the answers of identical requests in progress. Teams share
answers only as their policies allow."""

//! The operator routes: a router over the node's requests and replies

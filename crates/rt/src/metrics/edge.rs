//! Metrics of the edge role.

super::metrics! {
}

//! Metrics of the health role.

super::metrics! {
}

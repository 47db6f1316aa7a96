//! Which certificate answers for which name.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::sign::CertifiedKey;

use super::Certificate;

type Keys = Vec<Arc<CertifiedKey>>;

/// All certificates by their names. Several may have one name, such as an ECDSA and an RSA one: the
/// first that the client understands is taken.
#[derive(Debug, Default)]
pub(super) struct ByName {
    exact: HashMap<String, Keys>,
    /// By what follows `*.`.
    wildcard: HashMap<String, Keys>,
    /// For clients that name no host.
    unnamed: Keys,
}

impl ByName {
    pub(super) fn new(certificates: &[Certificate]) -> Self {
        let mut by_name = Self::default();
        for certificate in certificates {
            for name in &certificate.names {
                let keys = match name.strip_prefix("*.") {
                    Some(parent) => by_name.wildcard.entry(parent.to_owned()).or_default(),
                    None => by_name.exact.entry(name.clone()).or_default(),
                };
                keys.push(Arc::clone(&certificate.key));
            }
        }
        // Whoever names no host may still be unable to understand the first certificate's key.
        if let Some(first) = certificates.first() {
            let like_first = certificates.iter().filter(|c| c.names == first.names);
            by_name.unnamed = like_first.map(|c| Arc::clone(&c.key)).collect();
        }
        by_name
    }

    /// Those that may be shown to a client that asks for `name`; none for a name of somebody else.
    fn of(&self, name: Option<&str>) -> Option<&Keys> {
        let Some(name) = name else { return Some(&self.unnamed) };
        let name = name.to_ascii_lowercase();
        self.exact.get(&name).or_else(|| self.wildcard.get(name.split_once('.')?.1))
    }

    /// The one to be shown to a client that asks for `name` and understands `schemes`.
    pub(super) fn choose(
        &self,
        name: Option<&str>,
        schemes: &[SignatureScheme],
    ) -> Option<&Arc<CertifiedKey>> {
        let keys = self.of(name)?;
        let understood = keys.iter().find(|key| key.key.choose_scheme(schemes).is_some());
        understood.or(keys.first())
    }
}

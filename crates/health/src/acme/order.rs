//! One order: account, challenge, key, certificate (RFC 8555 section 7).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationStatus, ChallengeType, Error,
    Identifier, NewAccount, NewOrder, OrderStatus, RetryPolicy,
};
use model::HostName;
use nodemap::{Acme, HandOut};
use rt::{clock, file};

use super::http_client::Client;
pub(super) use super::keep::Issued;
use super::{AcmeParams, Challenge, publish};
use crate::aside::aside;
use crate::desk::Desk;
use crate::probe::Tls;

/// Largest file of an account, bytes.
const ACCOUNT_BYTES_MAX: u64 = 64 << 10;
/// How often an order is begun when the authority takes its own nonces for bad ones; the library tries
/// each request thrice.
const NONCE_TRIES: u32 = 4;
/// Patience with an authority that checks or signs.
const RETRIES: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(250)).timeout(Duration::from_secs(180));
/// What an authority calls a nonce that it does not take (section 6.5).
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";

/// Why an order brought nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    /// The authority says no.
    #[error("the authority refuses: {0}")]
    Refused(String),
    /// It could not be asked, or what came cannot be used.
    #[error("{0}")]
    Other(String),
}

impl Failed {
    /// The word of the metric.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Other(_) => "failed",
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(problem) => Self::Refused(problem.to_string()),
            error => Self::Other(error.to_string()),
        }
    }
}

/// What is ordered.
pub(super) struct Desired {
    pub(super) name: String,
    pub(super) challenge: Challenge,
    /// Where the text of a challenge over DNS belongs.
    pub(super) text_names: Vec<HostName>,
}

/// Orders from one authority.
pub(super) struct Registrar {
    directory: String,
    contact: Vec<String>,
    tls: Arc<Tls>,
    account_file: PathBuf,
    account: Option<Account>,
    /// What hosts are told between orders.
    acme: Acme,
}

impl Registrar {
    pub(super) fn new(params: &AcmeParams, tls: Arc<Tls>, account_file: PathBuf) -> Self {
        Self {
            directory: params.directory.to_string(),
            contact: params.contact.clone(),
            tls,
            account_file,
            account: None,
            acme: Acme::default(),
        }
    }

    /// Brings the key and the chain of a certificate, in PEM, one after the other.
    pub(super) async fn order(&mut self, desired: &Desired, desk: &Desk) -> Result<String, Failed> {
        let account = self.account().await?;
        self.acme.thumbprint = Some(account.key_thumbprint().to_owned());
        publish(desk, self.acme.clone()).await?;
        for _ in 0..NONCE_TRIES {
            match order_once(&account, desired, &self.acme, desk).await {
                Err(Attempt::BadNonce) => {}
                Err(Attempt::Failed(failed)) => return Err(failed),
                Ok(pem) => return Ok(pem),
            }
        }
        Err(nonces_refused())
    }

    /// Says where nodes fetch certificates, from the next [`Registrar::tell`] on.
    pub(super) fn set_hand_out(&mut self, hand_out: HandOut) {
        self.acme.hand_out = Some(hand_out);
    }

    /// Tells hosts what holds between orders: the texts of the last one are taken back.
    pub(super) fn tell(&self, desk: &Desk) {
        desk.checker().handle_acme(clock::now(), Some(self.acme.clone()));
        desk.told.notify_one();
    }

    /// The account on disk, or a new one.
    async fn account(&mut self) -> Result<Account, Failed> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        let path = self.account_file.clone();
        let read = aside(move || read_account(&path)).await.map_err(from_io)?;
        let account = match read.map_err(Failed::Other)? {
            Some(credentials) => self.builder().from_credentials(credentials).await?,
            None => {
                let (account, credentials) = self.open_account().await?;
                let path = self.account_file.clone();
                let written = aside(move || write_account(&path, &credentials)).await;
                written.map_err(from_io)?.map_err(from_io)?;
                tracing::info!(directory = self.directory, "an account was opened");
                account
            }
        };
        self.account = Some(account.clone());
        Ok(account)
    }

    async fn open_account(&self) -> Result<(Account, AccountCredentials), Failed> {
        let contact: Vec<&str> = self.contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        for _ in 0..NONCE_TRIES {
            let made = self.builder().create(&new, self.directory.clone(), None).await;
            match made.map_err(Attempt::from) {
                Err(Attempt::BadNonce) => {}
                Err(Attempt::Failed(failed)) => return Err(failed),
                Ok(made) => return Ok(made),
            }
        }
        Err(nonces_refused())
    }

    fn builder(&self) -> AccountBuilder {
        Account::builder_with_http(Box::new(Client(Arc::clone(&self.tls))))
    }
}

fn read_account(path: &Path) -> Result<Option<AccountCredentials>, String> {
    let bytes = match file::read_bounded(path, ACCOUNT_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    // What stands in it is a secret, so what is wrong with it is not shown.
    let read = serde_json::from_slice(&bytes);
    read.map(Some).map_err(|_| {
        format!("{} is no account: move it away, and a new one is opened", path.display())
    })
}

fn write_account(path: &Path, credentials: &AccountCredentials) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    file::write_atomic_private(path, &serde_json::to_vec(credentials)?)
}

fn nonces_refused() -> Failed {
    Failed::Refused("it takes no nonce of its own".into())
}

fn from_io(error: io::Error) -> Failed {
    Failed::Other(error.to_string())
}

/// Why one attempt brought nothing.
enum Attempt {
    BadNonce,
    Failed(Failed),
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Self {
        match &error {
            Error::Api(problem) if problem.r#type.as_deref() == Some(BAD_NONCE) => Self::BadNonce,
            _ => Self::Failed(error.into()),
        }
    }
}

impl From<Failed> for Attempt {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

async fn order_once(
    account: &Account,
    desired: &Desired,
    acme: &Acme,
    desk: &Desk,
) -> Result<String, Attempt> {
    let names = [Identifier::Dns(desired.name.clone())];
    let mut order = account.new_order(&NewOrder::new(&names)).await?;
    let kind = match desired.challenge {
        Challenge::Http01 => ChallengeType::Http01,
        Challenge::Dns01 => ChallengeType::Dns01,
    };
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => return Err(refused(format!("its authorization is {status:?}"))),
        }
        let word = desired.challenge.as_str();
        let challenge = authorization.challenge(kind.clone());
        let mut challenge =
            challenge.ok_or_else(|| refused(format!("it has no challenge {word}")))?;
        if desired.challenge == Challenge::Dns01 {
            let text = challenge.key_authorization().dns_value();
            let texts = desired.text_names.iter().map(|name| (name.clone(), vec![text.clone()]));
            publish(desk, Acme { texts: texts.collect(), ..acme.clone() }).await?;
        }
        challenge.set_ready().await?;
    }
    let ready = order.poll_ready(&RETRIES).await;
    if !matches!(ready, Ok(OrderStatus::Ready)) {
        let why = refusal(&mut order).await;
        return Err(match (ready, why) {
            (_, Some(why)) => refused(why),
            (Err(error), None) => error.into(),
            (Ok(status), None) => refused(format!("the order is {status:?}")),
        });
    }
    let key = order.finalize().await?;
    let chain = order.poll_certificate(&RETRIES).await?;
    Ok(format!("{}\n{chain}", key.trim_end()))
}

/// What the authority says of a challenge that it did not find answered.
async fn refusal(order: &mut instant_acme::Order) -> Option<String> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let state = authorization.refresh().await.ok()?;
        let errors = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        if let Some(error) = errors.map(ToString::to_string).next() {
            return Some(error);
        }
    }
    None
}

fn refused(why: String) -> Attempt {
    Attempt::Failed(Failed::Refused(why))
}

/**
 * Every bound of the gateway, each with its reason. What an operator may set is in `src/config.ts`; what is here is
 * part of the contract, or a size that nobody needs to turn.
 */
export const limits = {
  /** Code points of a key: DESIGN section 4. */
  keyCodePoints: 256,
  /** A raw request target: a key of 256 four-byte characters, percent-encoded, takes 3,072, and its route a few more. */
  targetBytes: 8192,
  /** A value up to this size is kept as text beside its bytes, which is quicker to send. */
  textBytes: 4096,
  /** A request body; the largest that has a meaning is a setting. */
  bodyBytes: 1024 * 1024,
  /** Time to send a whole request: a slow sender must not hold a socket for ever. */
  requestMs: 30_000,
  /** How often requests that take too long are looked for; Node's own 30 s would double the time. */
  requestLookMs: 1000,
  /**
   * A connection on which nothing moves ends after this long: its client does not read its answer. Longer than any answer takes, a take-in
   * that waits for its turn among them; event streams say something every 15 s, and websockets have pings.
   */
  stuckMs: 5 * 60_000,
  /** Requests of a connection that are answered ahead of their turn, each answer held in memory: 2 MB at most (a page of the state). */
  answersAhead: 8,
  /** Requests behind those, some KB each: more of them unanswered on one connection nobody sends in earnest. */
  requestsWaiting: 1024,
  /** A bearer token; SPIRE's and common OpenID providers' stay under 4 KiB. */
  tokenBytes: 8192,
  /** Verified tokens that are remembered, so that a signature is checked once a token and not once a request. */
  verifiedTokens: 10_000,
  /** An unknown key id reads the JWKS again at most this often: DESIGN section 8. */
  jwksCooldownMs: 30_000,
  /** A JWKS URL is read again after this long although no unknown key id asks for it, so that a removed key ends. */
  jwksRefreshMs: 10 * 60_000,
  /** One read of a JWKS URL. */
  jwksFetchMs: 5000,
  /** How long requests wait for such a read, before the last good keys serve them: a provider that hangs must not halt all modules. */
  jwksPatienceMs: 500,
  /** A JWKS: some hundred keys take less than a tenth of it. */
  jwksBytes: 1024 * 1024,
  /** A JWKS file's time and size are looked at this often, at most. */
  jwksStatMs: 1000,
  /** A PEM file: a chain and its key take some 10 KB, the authorities of a large mesh some 100. */
  pemBytes: 1024 * 1024,
  /** How often the files of TLS are looked at. */
  tlsLookMs: 1000,
  /** A TLS handshake; a client that opens a connection and says nothing must not hold it. */
  handshakeMs: 10_000,
  /** Certificates between a client's own and its anchor, that one among them: a chain of more is none that anybody makes. */
  chainLength: 8,
  /** Client certificates that are remembered, since a resumed TLS session does not show its whole chain. */
  knownCertificates: 10_000,
  /**
   * Bad credentials of one address in a minute, at once or spread, before the next are told to wait: far above what clients that renew too
   * late send, and a signature check each, so some ms of CPU a second at most.
   */
  failedAuthentications: 600,
  /** Addresses whose bad credentials are counted; the least recently seen leaves. */
  failingAddresses: 10_000,
  /** Keys that one token is tried against: without a key id, each would cost a signature check. */
  keysTried: 16,
  /** A person's name as the provider has it, in logs and records. */
  principalCharacters: 128,
  /** Clocks may differ this much when a credential is accepted: DESIGN section 8. */
  clockLeewayS: 5,

  /** Asks in flight: a reconnect with thousands of watches must be no flood (DESIGN section 2). */
  asksInFlight: 64,
  /** Asks that wait for their turn; beyond it a get is told that the gateway is overloaded. */
  asksQueued: 100_000,
  /** Of these, of one module: more than are answered within the time that a get waits. Watches that find no room are asked again. */
  asksQueuedPerModule: 20_000,
  /** Values kept in memory that nobody watches; the least recently used leaves. */
  unwatchedValues: 10_000,
  /** Bytes of those values together. */
  unwatchedBytes: 64 * 1024 * 1024,
  /** A value that nobody watched or got for this long leaves: an idle gateway asks nobody. */
  unwatchedMs: 60_000,
  /** Silence of the provisioner after which one value is asked to see that it lives: DESIGN section 2. */
  probeAfterMs: 5000,
  /** Nobody answering one value is looked into at most this often: a module that is nowhere must not make the others be asked. */
  suspectMs: 1000,
  /** How often values that leave by their age are looked for. */
  purgeMs: 1000,
  /** An answer older than what was heard or handed is the truth after this long: the bucket was rewound (DESIGN section 4). */
  rewoundAfterMs: 5000,
  /** First and longest pause between asks of a value that is not answered; each is drawn with jitter. */
  reaskFirstMs: 50,
  reaskLongestMs: 2000,
  /**
   * The longest pause while answers are too old: with one provisioner of several behind, enough asks are made before
   * `rewoundAfterMs` that another one's answer is among them.
   */
  reaskLaggingMs: 250,
  /** The one coarse timer of the view: how late a deadline or a pause may be. */
  viewTickMs: 25,
  /** Watchers that are told of a change in one turn of the event loop, so that a large fan-out leaves room for other work. */
  fanoutSlice: 64,

  /** Unsent bytes of a connection above which it is conflated: DESIGN section 7. */
  unsentBytes: 1024 * 1024,
  /** Ping, tick: DESIGN section 7. */
  pingMs: 25_000,
  pongMs: 10_000,
  tickMs: 25_000,
  /** How often live connections are looked at: how late a ping, tick or comment may be. */
  beatMs: 1000,
  /** A comment on an event stream that is otherwise silent: DESIGN section 6. */
  commentMs: 15_000,
  /** Within this time, at random, clients of a draining gateway's streams come back. */
  comeBackMs: 2000,
  /** Notice before a credential ends: DESIGN section 7. */
  expiringMs: 30_000,
  /** Bad messages of a connection in a minute before it is closed with 4400: DESIGN section 7. */
  badMessages: 100,
  badMessagesMs: 60_000,
  /** Messages, pings and pongs of one connection, whatever RATE_LIMIT says: one client must not take a whole core. And how many may come at once. */
  messagesPerSecond: 5000,
  messagesAtOnce: 10_000,
  /** How long a client that sends too many has to read so; what it goes on sending would cost as much as before. */
  floodGraceMs: 500,
  /** Watches of a module over all its connections here: each takes a few hundred bytes and an ask. */
  watchesPerModule: 100_000,
  /** Principals whose rate is remembered, where RATE_LIMIT is set. */
  ratedPrincipals: 10_000,
  /** Requests of one connection that are being answered at once; more are read when these are done. */
  callsInFlight: 256,
  /** Parts of DRAIN_MS. The first: the port stays open, and /readyz is 503, so that a balancer sees it; the most, in ms. */
  drainNoticePart: 0.1,
  drainNoticeMs: 10_000,
  /** The next: live connections are told one after the other, or a thousand clients would come back as one wave; the most, in ms. */
  drainTellPart: 0.3,
  drainTellMs: 3000,
  /** The pause for each: a few clients are told at once, a thousand over the whole time. */
  drainEachMs: 3,
  /** Then they have this long to close, a tenth of DRAIN_MS at most, and are ended. */
  drainGraceMs: 500,
  drainGracePart: 0.1,
  /** What is being answered has until this part of DRAIN_MS; the rest is for the end of the bus's connection. */
  drainAnswersPart: 0.8,
  /** setTimeout fires at once beyond 2^31-1 ms: a longer wait is made of pieces. */
  longestTimerMs: 2 ** 31 - 1,

  /** A document in a bucket: the bus's default payload limit is 1 MiB. */
  documentBytes: 1024 * 1024,
  /** Nesting of a document or value; JSON.stringify is recursive. */
  documentDepth: 64,
  /** A subject in a manifest; nats-server's control line is 4 KiB. */
  subjectCharacters: 512,
  /** All subjects of a manifest together: every module's stand in one composition, which the bus takes in one message of 1 MiB. */
  permissionsCharacters: 8192,
  /** Subjects in one list of a manifest. */
  subjectsInList: 256,
  /** A JSON Schema in a manifest, in its canonical form. */
  schemaCharacters: 32 * 1024,
  /**
   * Checking one value: a pattern such as `(a+)+$` can take years over 50 characters. The event loop waits that long at worst.
   */
  schemaMs: 500,
  /** Tries of a check that ran out of time while the process had none. */
  schemaTries: 5,
  /** Compiling a schema, once: a busy machine still finishes an honest one. */
  schemaCompileMs: 3000,
  /** Manifests that passed and are remembered, and their characters together; the least recently used leaves. */
  manifestsPassed: 5000,
  manifestsPassedCharacters: 16 * 1024 * 1024,
  /** Documents that were judged and are remembered, and their characters together: 200 modules on 20 nodes take 4,000 and some 4 MiB. */
  documentsJudged: 20_000,
  documentsJudgedCharacters: 32 * 1024 * 1024,
  /** Modules that bindings are followed to, to see whether they go round: more than a large mesh has. */
  bindingWalk: 1000,
  /** Compiled schemas that are remembered; the least recently used leaves. */
  schemasCompiled: 500,
  /** Reasons told of one composition that cannot be resolved; the rest is counted. */
  unresolvableReasons: 20,
  /** A reason given with a take-in, kept in the record. */
  reasonCharacters: 500,
  /** One run of a take-in: DESIGN section 3. */
  takeInMs: 30_000,
  /** Tries of a step after a transient fault, and the first pause between them. */
  transientTries: 3,
  transientPauseMs: 100,
  /** Silence of a broker agent that fails the step: DESIGN section 3. */
  appliedMs: 5000,
  /** Take-ins of different modules at once in a process. */
  takeInsAtOnce: 16,
  /** Take-ins that wait for their turn. */
  takeInsQueued: 10_000,
  /** Own writes that are remembered, so that a process does not wake itself; more than it makes before it hears of them. */
  ownWrites: 1000,
  /** Messages of a bucket that a gateway knows between two looks whether it is still the same bucket; each costs a read then. */
  bucketMarks: 16,
  /** How often it is looked whether all buckets are there. */
  bucketsLookMs: 5000,
  /** Delete markers that are remembered, so that a listing does not read them again: some years of builds of many modules. */
  markersKnown: 10_000,
  /** Listings whose keys are remembered, so that they are read beside their names: two for each module of a large mesh. */
  listingsKnown: 1000,
  /** Reads of a bucket in flight. */
  readsInFlight: 64,
  /** Every JetStream call: a server that hangs must not hang a step. */
  jetstreamMs: 5000,
  /** How late that may be noticed: one timer for all calls. */
  jetstreamSweepMs: 100,
  /** `Prefer: wait=S`: DESIGN section 6. */
  preferWaitS: 55,
  /** A step's error in a record, of which 64 are kept: some sentences. */
  recordErrorCharacters: 1000,
  /** Who and why, kept in one record. */
  wakesInRecord: 20,

  /** Modules, or nodes, in one answer of the state, where none is asked for and at most: a thousand are some 2 MB. */
  pageDefault: 100,
  pageMost: 1000,
  /** Differences told in one sentence of the state; the rest is counted, and the plan tells all. */
  stateDifferences: 5,
  /** Modules that are looked at before others have their turn of the event loop. */
  stateSlice: 2,
  /** The state's copy of the buckets is let go when nobody asked for so long: dashboards ask each minute or not at all. */
  pictureIdleMs: 5 * 60_000,
  /** How long a request waits for that copy to be made; 4,000 compositions take a second. */
  pictureMs: 5000,
  /** Characters of that copy: 4,000 compositions of 10 KB are 40 million. */
  pictureCharacters: 256 * 1024 * 1024,
  /** Records of a module: its bucket keeps so many (DESIGN section 5). */
  recordsKept: 64,
  /** All settings of a module: a composition has to hold them, with its other values and the credential, in one message of 1 MiB. */
  settingsBytes: 960 * 1024,

  /** Waits between attempts to reach the bus; for ever, since nothing works without it. */
  reconnectMs: 250,
  reconnectJitterMs: 250,
  connectMs: 2000,
  /** Bus pings: a connection that went half-open is noticed after two of them. */
  busPingMs: 3000,
  busPings: 2,
  /** Refusals of the bus that are said once each: a user without rights is refused at every try. */
  saidRefusals: 100,
  /** Tokens of a refused subject that tell one refusal from another; names that differ from try to try stand behind them. */
  saidTokens: 5,
  /** Buckets that the bus's user may not look at are tried again after this long: rights can be widened while the connection stays. */
  refusedLookMs: 60_000,
  /** Markers of a module's deleted grants that stay, for who was away for a while; older ones are swept when there are twice as many. */
  grantMarkers: 16,
  /** A bucket that was not heard for so long is read anew: markers may have been swept meanwhile. */
  followAnewMs: 60_000,
  /** A bucket's watch without a heartbeat for this long is started again. */
  heartbeatMs: 2000,
  /** A bucket that changes is read a second time this often: a purge can make a server leave messages out. */
  followCheckMs: 5000,
  /** Second readings that are disturbed by writes before one of them counts all the same. */
  followCheckTries: 5,

  /** An ask's payload: a key of 256 characters, each escaped in the longest way, and its kind. */
  askBytes: 8192,
  /** What a reply's headers take of the bus's largest payload, with room for a reason. */
  replyHeaderBytes: 2048,
  /** What the headers of a write to a bucket take: two short ones. */
  writeHeaderBytes: 256,
  /** Asks of a broker agent that wait for a reload; the next one is told so. */
  appliedAsks: 1000,
  /** How long such an ask waits: a little less than the take-in does, so that it hears the reason and not silence. */
  appliedAskMs: 4000,
  /** A nats-server that was told to reload has done so in this time, or has not taken it. */
  reloadMs: 3000,
  /** How often the server is looked at until then. */
  reloadPollMs: 25,
  /** `nats-server -t` on a user list; it takes some 50 ms. */
  checkConfigMs: 10_000,
  /** How often the file of fixed users is looked at; it counts at the second look, so that one that is being written does not. */
  fixedUsersLookMs: 1000,
  /** A list that could not be applied is tried again after this long though nobody asks. */
  reloadAgainMs: 5000,
  /** A service of the bus that ended though it should not is started again after this long. */
  serviceAgainMs: 1000,
  /** The bus of a dev that was killed outlives it for so long, so that the other parts can drain: a gateway with a few clients takes some 1.2 s. */
  orphanedBusMs: 2000,
  /** A bus that dev started takes a moment to listen; what keeps it longer is said. */
  devPatienceMs: 1000,
  /** How often dev looks whether what it started is ready. */
  devPollMs: 50,
  /** How long dev waits for the first compositions before it says what can be tried. */
  devComposedMs: 10_000,
  /** An agent that is told to stop answers what it was asked, for so long at most. */
  agentDrainMs: 2000,
  /** What stops on a signal has this long before its process ends all the same. */
  stopMs: 5000
} as const

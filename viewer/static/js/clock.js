// One clock for everything on a page: videos, meshes, charts. A frame counts the same on all of them.

const FAR = 0.35, NEAR = 0.02;

export class Clock {
  constructor(frames, fps) {
    Object.assign(this, { frames: Math.max(1, frames), fps: fps || 24, frame: 0, playing: false, speed: 1, loop: true, exact: 0 });
    this.videos = new Set(); this.listeners = new Set(); this.last = 0; this.raf = 0; this.ended = false;
    this.tick = this.tick.bind(this);
  }
  add(video) {
    this.videos.add(video);
    const settle = () => this.settle(video);
    video.addEventListener("loadeddata", settle);
    settle();
  }
  on(listener) { this.listeners.add(listener); listener(this.frame, true); }
  tell(state) { for (const listener of this.listeners) listener(this.frame, state); }
  extend(frames, fps) {
    if (frames > this.frames) this.frames = frames;
    if (fps) this.fps = fps;
    this.tell(true);
  }
  seek(frame) {
    this.frame = Math.max(0, Math.min(this.frames - 1, Math.round(frame)));
    this.exact = this.frame;
    for (const video of this.videos) this.settle(video, true);
    this.tell(false);
  }
  step(by) { this.pause(); this.seek(this.frame + by); }
  toggle() { if (this.playing) this.pause(); else this.play(); }
  play() {
    if (this.playing) return;
    if (!this.loop && this.frame >= this.frames - 1) this.seek(0);
    this.playing = true; this.last = performance.now();
    for (const video of this.videos) this.settle(video, true);
    this.raf = requestAnimationFrame(this.tick);
    this.tell(true);
  }
  pause() {
    if (!this.playing) return;
    this.playing = false;
    cancelAnimationFrame(this.raf);
    for (const video of this.videos) { video.pause(); this.settle(video, true); }
    this.tell(true);
  }
  setSpeed(speed) { this.speed = speed; for (const video of this.videos) this.settle(video); this.tell(true); }
  setLoop(loop) { this.loop = loop; this.tell(true); }
  // Where the video should be: in the middle of its frame, so that rounding never shows a neighbour.
  goal(video, exact) {
    const end = Number.isFinite(video.duration) ? video.duration - 0.25 / this.fps : Infinity;
    return Math.max(0, Math.min(end, (exact + 0.5) / this.fps));
  }
  settle(video, hard = false) {
    if (this.ended || video.readyState < 1) return;
    if (!this.playing) {
      const goal = this.goal(video, this.frame);
      if (Math.abs(video.currentTime - goal) > 0.2 / this.fps) video.currentTime = goal;
      return;
    }
    const goal = this.goal(video, this.exact), drift = video.currentTime - goal;
    const over = Number.isFinite(video.duration) && (this.exact + 1) / this.fps > video.duration;
    if (hard || Math.abs(drift) > FAR) video.currentTime = goal;
    // Small differences are caught up by going a little faster or slower: no stutter.
    const rate = Math.abs(drift) < NEAR ? this.speed : this.speed * Math.max(0.5, Math.min(1.5, 1 - drift));
    if (Math.abs(video.playbackRate - rate) > 0.001) video.playbackRate = Math.max(0.0625, Math.min(16, rate));
    if (over) { if (!video.paused) video.pause(); } else if (video.paused) video.play().catch(() => {});
  }
  tick(now) {
    if (!this.playing) return;
    // After a long pause (hidden tab) go on from here instead of leaping.
    const passed = Math.min(0.25, (now - this.last) / 1000);
    this.last = now;
    this.exact += passed * this.fps * this.speed;
    let wrapped = false;
    if (this.exact >= this.frames) {
      if (!this.loop) { this.exact = this.frames - 1; this.frame = this.frames - 1; this.pause(); this.tell(true); return; }
      this.exact %= this.frames; wrapped = true;
    }
    const frame = Math.floor(this.exact);
    for (const video of this.videos) this.settle(video, wrapped);
    if (frame !== this.frame) { this.frame = frame; this.tell(false); }
    this.raf = requestAnimationFrame(this.tick);
  }
  end() {
    this.ended = true; this.playing = false;
    cancelAnimationFrame(this.raf);
    for (const video of this.videos) { video.pause(); video.removeAttribute("src"); video.load(); }
    this.videos.clear(); this.listeners.clear();
  }
}

// The page of one's own account: shows a new token once, until the page is left.

document.getElementById("create-token")?.addEventListener("done", (event) => {
  document.getElementById("token-text").textContent = event.detail.token;
  const place = document.getElementById("new-token");
  place.hidden = false;
  place.scrollIntoView({ block: "nearest" });
});

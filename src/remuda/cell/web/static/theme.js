// Switches between light and dark. Without a choice the page follows the system.

const KEY = "remuda-theme";

function apply(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

apply(localStorage.getItem(KEY));
document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-theme-switch]")) return;
  const isDark = getComputedStyle(document.documentElement).colorScheme.trim() === "dark";
  const theme = isDark ? "light" : "dark";
  localStorage.setItem(KEY, theme);
  apply(theme);
});
